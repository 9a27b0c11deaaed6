package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// ending is how a tunnel, or the attempt at one, ended.
type ending struct {
	err   error
	lived time.Duration // zero: never welcomed
}

// endKind classifies endings by the reaction to them.
type endKind int

const (
	endBroken    endKind = iota // the path or the gateway failed: try again
	endGoingAway                // the gateway shuts down, maybe to restart: try again soon
	endReset                    // the gateway was killed and is up again: try again at once
	endBusy                     // too many connectors are connecting to the gateway
	endSilent                   // no answer: the gateway is down, or UDP is blocked
	endRefused                  // the gateway does not accept the token
	endRemoved                  // the connector was removed
	endReplaced                 // another process uses the same token
	endLimited                  // too many attempts to pair
	endEdgeInUse                // another leg has a tunnel to this edge
	endPortal                   // a captive portal answers in place of the gateway
	endWrongPin                 // another server answers at the gateway's address
)

// advice is the fix for each kind of ending. It is empty if only waiting helps.
var advice = [...]string{
	endSilent: "check that the gateway runs and that UDP, or HTTPS, can reach it",
	endRefused: "get a new token on the gateway's machine with `postern gateway connector rotate NAME`, or `create` " +
		"if the connector was removed, and put it into tunnel_token; or pair again",
	endRemoved: "the connector was removed on the gateway; create a new one on the gateway's machine with " +
		"`postern gateway connector create` and put its token into tunnel_token, or pair again",
	endReplaced: "another connector runs with the same tunnel token; stop one of them, or give it a separate token",
	endEdgeInUse: "let this machine reach the edge by UDP at its `advertise`; without UDP, the balancer has to lead " +
		"WebSockets to each edge",
	endPortal: "this network may require a sign-in: open any page in a browser",
	endWrongPin: "check `server`; if the gateway has a new identity, pair again, or get a new token on the gateway's " +
		"machine with `postern gateway connector rotate NAME`, or `create` if the gateway lost its storage",
}

// Errors with which the connector ends a tunnel, or an attempt at one.
var (
	ErrNoWelcome    = errors.New("the gateway did not answer the hello")
	errNoPong       = errors.New("the gateway does not answer pings")
	errNotConfirmed = errors.New("the gateway did not confirm the drain")
	errDrainTimeout = errors.New("running requests did not finish in time")
)

func kindOf(err error) endKind {
	if deny, ok := errors.AsType[link.Deny](err); ok {
		switch {
		case deny.Code == link.DenyShutdown:
			return endGoingAway
		case deny.Code == link.DenyPairingLimit:
			return endLimited
		case deny.Code == link.DenyEdgeInUse:
			return endEdgeInUse
		case deny.Retry:
			return endBroken
		default:
			return endRefused
		}
	}
	switch code, _ := link.CloseReason(err); code {
	case link.CloseShutdown:
		return endGoingAway
	case link.CloseRemoved:
		return endRemoved
	case link.CloseReplaced:
		return endReplaced
	case link.CloseDenied:
		return endRefused
	}
	switch {
	case link.Restarted(err):
		return endReset
	case errors.Is(err, link.ErrPin):
		return endWrongPin
	case errors.Is(err, dial.ErrPortal):
		return endPortal
	case errors.Is(err, dial.ErrBusy), errors.Is(err, dial.ErrNotReady):
		return endBusy
	case errors.Is(err, dial.ErrSilent), errors.Is(err, dial.ErrNoHTTPS):
		return endSilent
	default:
		return endBroken
	}
}

// Explain returns why a tunnel, or an attempt at one, ended, and the fix if one is known.
func Explain(err error) (reason, fix string) {
	fix = advice[kindOf(err)]
	code, closed := link.CloseReason(err)
	switch {
	case closed:
		return "the gateway closed the tunnel: " + code.String(), fix
	case link.Restarted(err):
		return "the gateway was restarted, or has given the tunnel up", fix
	case kindOf(err) == endEdgeInUse:
		return "the connection led to another edge, which has a tunnel already", fix
	case link.Silent(err):
		return "the gateway has not sent anything for too long", fix
	default:
		return strings.ReplaceAll(err.Error(), "\n", "; "), fix // one line per address
	}
}

// Reason returns the first result of Explain.
func Reason(err error) string {
	reason, _ := Explain(err)
	return reason
}

// Refused reports whether the gateway does not accept the token.
func Refused(err error) bool { return kindOf(err) == endRefused }

// FatalError ends [Agent.Run]. An operator has to change the configuration or the gateway.
type FatalError struct{ Problem }

// Error implements error.
func (e *FatalError) Error() string { return e.String() }

// fatal returns the error that ends Run, or nil if another attempt may help. A process
// that has been online survives a refusal, as the gateway may be restored from a backup.
// Before that, the token is most likely wrong.
func (l *leg) fatal(err error) *FatalError {
	kind := kindOf(err)
	final := kind == endRemoved || !l.wasOnline.Load() && (kind == endRefused || kind == endWrongPin)
	if !final {
		return nil
	}
	reason, fix := Explain(err)
	return &FatalError{Problem{Reason: reason, Fix: fix}}
}

// enterWaiting enters the state waiting for a pause, and logs the ending and its fix.
func (l *leg) enterWaiting(end ending, pause time.Duration) {
	message, level := "cannot connect", slog.LevelWarn
	if end.lived > 0 {
		message = "disconnected"
	}
	switch kindOf(end.err) {
	case endGoingAway, endReset:
		level = slog.LevelInfo
	case endEdgeInUse:
		level = slog.LevelDebug
	case endRefused, endReplaced, endWrongPin:
		level = slog.LevelError
	}
	reason, fix := Explain(end.err)
	attributes := []any{"reason", reason, "retry_in", pause.Round(10 * time.Millisecond).String()}
	if end.lived > 0 {
		attributes = append(attributes, "lived", end.lived.Round(time.Second).String())
	}
	if fix != "" {
		attributes = append(attributes, "fix", fix)
	}
	if edge := l.target().Name; edge != "" {
		attributes = append(attributes, "edge", edge)
	}
	l.enter(StateWaiting, &Problem{Reason: reason, Fix: fix, RetryAt: time.Now().Add(pause)})
	l.Logger.Log(context.Background(), level, message, attributes...)
}

const (
	firstPause = 500 * time.Millisecond
	longPause  = 30 * time.Second
	// maxRefusalPause is the ceiling after repeated refusals.
	maxRefusalPause = 5 * time.Minute
	// noRoutePause is the ceiling while this machine has no route to the gateway. An attempt
	// is cheap, and the route may return at any moment.
	noRoutePause = 2 * time.Second
	// resetPause is the ceiling after a stateless reset: the gateway is up again.
	resetPause = 200 * time.Millisecond
	// healthyAfter is the age at which a tunnel resets the pauses: a gateway that breaks
	// every tunnel must not be dialed twice a second.
	healthyAfter = 5 * time.Second

	// busyPause is the ceiling after a refusal by a busy gateway.
	busyPause = 10 * time.Second
)

// retry computes the pause before the next attempt: full jitter below a ceiling that
// doubles from 0.5 s to 30 s, so that the connectors of a gateway do not reconnect all
// at once.
type retry struct {
	failures int            // in a row
	refusals int            // since the last tunnel
	random   func() float64 // in [0, 1)
}

// pause returns how long to wait after an ending: a random part of a ceiling.
//
//	ending                      ceiling                    at least   counts as
//	refused, wrong pin          30 s, doubled up to 5 min  half       a refusal
//	removed, replaced, limited  30 s                       half       nothing
//	reset                       0.2 s                      0          a success
//	no route to the gateway     2 s, once that is reached  0          nothing
//	busy                        0.5 s, doubled up to 10 s  0          a failure
//	others                      0.5 s, doubled up to 30 s  0          a failure
//
// The first pause after a tunnel that lived for five seconds, or that a gateway has ended to shut down, is
// 0.5 s again. Half of a pause is fixed where only an operator or time can help. So two connectors with one
// token do not keep replacing each other.
func (r *retry) pause(end ending) time.Duration {
	if end.lived > 0 {
		r.refusals = 0
	}
	kind, limit := kindOf(end.err), longPause
	switch kind {
	case endRefused, endWrongPin:
		ceiling := min(longPause<<min(r.refusals, 4), maxRefusalPause)
		r.refusals++
		return ceiling/2 + r.jitter(ceiling/2)
	case endRemoved, endReplaced, endLimited:
		return longPause/2 + r.jitter(longPause/2)
	case endReset: // noticed by pings, which are already spread in time
		r.failures = 0
		return r.jitter(resetPause)
	case endBusy:
		limit = busyPause
	}
	if end.lived >= healthyAfter || kind == endGoingAway && end.lived > 0 {
		r.failures = 0
	}
	ceiling := min(firstPause<<min(r.failures, 10), limit)
	if ceiling >= noRoutePause && end.lived == 0 && dial.NoRoute(end.err) {
		return r.jitter(noRoutePause) // does not count as a failure
	}
	r.failures++
	return r.jitter(ceiling)
}

func (r *retry) jitter(ceiling time.Duration) time.Duration {
	return time.Duration(r.random() * float64(ceiling))
}
