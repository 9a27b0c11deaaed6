package pairing

import (
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// refusals maps errors of the store to the denies that devices get.
var refusals = []struct {
	err  error
	deny *link.Deny
}{
	{store.ErrUnauthenticated, denyUnknown},
	{store.ErrExpired, denyExpired},
	{store.ErrDenied, denyDenied},
	{store.ErrUsed, &link.Deny{
		Code: link.DenyPairingUsed,
		Message: "another device has already used this pairing code, and each code works for only one device; start a new " +
			"pairing in the console for this one",
	}},
}

// These denies may also be sent while a device is waiting.
var (
	denyUnknown = &link.Deny{
		Code:    link.DenyPairingUnknown,
		Message: "unknown pairing code; compare it with the one in the console, or start a new pairing there",
	}
	denyExpired = &link.Deny{
		Code: link.DenyPairingExpired,
		Message: "the pairing code expired before this device was approved; start a new pairing in the console and use its " +
			"code",
	}
	denyDenied = &link.Deny{
		Code: link.DenyPairingDenied,
		Message: "a user of the gateway denied this device or canceled its pairing code; if that was a mistake, start a " +
			"new pairing in the console",
	}
	denyNoToken = &link.Deny{
		Code:    link.DenyUnavailable,
		Message: "this device is approved, but the gateway cannot create its tunnel token now; see the gateway's log",
		Retry:   true,
	}
	denyShutdown = &link.Deny{Code: link.DenyShutdown, Message: "the gateway is shutting down", Retry: true}
)

// refusal returns the deny for an error of the store, nil if err is nil.
func (s *Service) refusal(err error) *link.Deny {
	if err == nil {
		return nil
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.deny
		}
	}
	if errors.Is(err, store.ErrInvalid) {
		return &link.Deny{Code: link.DenyHello, Message: err.Error()}
	}
	s.options.Logger.Warn("failed to claim a pairing", "error", err)
	return &link.Deny{Code: link.DenyUnavailable, Message: "the gateway cannot check the pairing code now", Retry: true}
}

func denyLimit(wait time.Duration) *link.Deny {
	return &link.Deny{
		Code:    link.DenyPairingLimit,
		Message: fmt.Sprintf("too many wrong pairing codes; try again in %s", inWords(wait)),
		Retry:   true,
	}
}

// inWords formats a duration. It rounds up: a device that waits for this time is not
// denied again.
func inWords(wait time.Duration) string {
	n, unit := (wait+time.Second-1)/time.Second, "second"
	if n > 90 {
		n, unit = (wait+time.Minute-1)/time.Minute, "minute"
	}
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", int64(n), unit)
}
