package pairing

import (
	"errors"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// refusal is what a device is told for an error of the store.
func (d *Desk) refusal(err error) *link.Deny {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrUnauthenticated):
		return denyUnknown()
	case errors.Is(err, store.ErrExpired):
		return denyExpired()
	case errors.Is(err, store.ErrUsed):
		return denyUsed()
	case errors.Is(err, store.ErrDenied):
		return denyDenied()
	case errors.Is(err, store.ErrInvalid):
		return &link.Deny{Code: link.DenyHello, Message: err.Error()}
	}
	d.log.Warn("claiming a pairing", "error", err)
	return &link.Deny{Code: link.DenyUnavailable, Message: "the gateway cannot check the claim code now", Retry: true}
}

func denyUnknown() *link.Deny {
	return &link.Deny{
		Code:    link.DenyPairingUnknown,
		Message: "the gateway does not know this claim code; compare it with the one on the console, or start a new pairing there",
	}
}

func denyExpired() *link.Deny {
	return &link.Deny{
		Code:    link.DenyPairingExpired,
		Message: "the claim code has run out before somebody approved this device; start a new pairing on the console and use its code",
	}
}

func denyUsed() *link.Deny {
	return &link.Deny{
		Code:    link.DenyPairingUsed,
		Message: "another device has used this claim code, and a code is good for one device; start a new pairing on the console for this one",
	}
}

func denyDenied() *link.Deny {
	return &link.Deny{
		Code:    link.DenyPairingDenied,
		Message: "a user of the gateway has denied this device or called its claim code off; if that was a mistake, start a new pairing on the console",
	}
}

func denyNoToken() *link.Deny {
	return &link.Deny{
		Code:    link.DenyUnavailable,
		Message: "this device is approved, but the gateway cannot make its tunnel token now; the gateway's log says why",
		Retry:   true,
	}
}

func denyShutdown() *link.Deny {
	return &link.Deny{Code: link.DenyShutdown, Message: "the gateway is shutting down", Retry: true}
}

func denyLimit(wait time.Duration) *link.Deny {
	return &link.Deny{
		Code:    link.DenyPairingLimit,
		Message: fmt.Sprintf("too many wrong claim codes were tried; try again in %s", inWords(wait)),
		Retry:   true,
	}
}

// inWords rounds up, so that who comes back then is not refused again.
func inWords(wait time.Duration) string {
	if seconds := int64((wait + time.Second - 1) / time.Second); seconds <= 90 {
		return counted(seconds, "second")
	}
	return counted(int64((wait+time.Minute-1)/time.Minute), "minute")
}

func counted(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
