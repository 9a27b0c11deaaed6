package agent

import (
	"errors"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	firstPause = 500 * time.Millisecond
	longPause  = 30 * time.Second
	// lastRefusal is the ceiling between attempts that are refused again and
	// again.
	lastRefusal = 5 * time.Minute
	// strandedPause is the ceiling while this machine has no way to the gateway:
	// an attempt burdens nobody, and the way may be back any moment.
	strandedPause = 2 * time.Second
	// rebornPause is the ceiling after the reset from a gateway that was killed
	// and is up again: everything is ready for the next tunnel.
	rebornPause = 200 * time.Millisecond
	// healthyAfter is how long a tunnel must live for the pauses to begin anew:
	// one that breaks at once, again and again, must not be dialled twice a
	// second.
	healthyAfter = 5 * time.Second

	// A UDP port where nobody listens stays silent. Short first attempts find a
	// gateway that has just restarted, longer ones a slow path.
	firstDialTimeout = 2 * time.Second
	longDialTimeout  = 10 * time.Second
	// heardDialTimeout is for a gateway that has sent anything: it lets so many in
	// at a time, and keeps the others waiting for up to 8 s.
	heardDialTimeout = 20 * time.Second
	// busyPause is the ceiling after a refusal by a gateway that has too many of
	// them to do: it gets better every moment.
	busyPause = 10 * time.Second
)

// retry decides about the pause before the next attempt: full jitter over a
// ceiling that doubles from 0.5 s to 30 s, so that many connectors that lost
// the same gateway do not come back all at once.
type retry struct {
	failures int            // in a row
	refusals int            // since the last tunnel
	random   func() float64 // in [0, 1)
}

func (r *retry) reset() { r.failures = 0 }

// pause returns how long to wait after a tunnel that ended so.
func (r *retry) pause(end ending) time.Duration {
	if end.lived > 0 {
		r.refusals = 0
	}
	switch kind := kindOf(end.err); {
	case kind == endRefused, kind == endWrongPin:
		ceiling := min(longPause<<min(r.refusals, 4), lastRefusal)
		r.refusals++
		return ceiling/2 + r.jitter(ceiling/2)
	case kind == endRemoved, kind == endReplaced, kind == endLimited:
		// Only somebody's hand, or time, can help. Half of the pause is fixed: a fast
		// retry would be wrong, and two connectors with one token would throw
		// each other out all the time.
		return longPause/2 + r.jitter(longPause/2)
	case kind == endReborn:
		// The pings of different connectors, by which they notice it, are spread
		// in time already.
		r.reset()
		return r.jitter(rebornPause)
	case end.lived >= healthyAfter, kind == endComeBack && end.lived > 0:
		r.reset()
	}
	ceiling := longPause
	if r.failures < 6 { // 0.5 s × 2⁶ is above 30 s
		ceiling = firstPause << r.failures
	}
	if kindOf(end.err) == endBusy {
		ceiling = min(ceiling, busyPause)
	}
	if ceiling >= strandedPause && end.lived == 0 && stranded(end.err) {
		return r.jitter(strandedPause) // and the next pause is no longer either
	}
	r.failures++
	return r.jitter(ceiling)
}

func (r *retry) jitter(ceiling time.Duration) time.Duration {
	return time.Duration(r.random() * float64(ceiling))
}

// dialTimeout bounds the next attempt's handshake.
func (r *retry) dialTimeout() time.Duration {
	return min(firstDialTimeout<<min(r.failures, 3), longDialTimeout)
}

// endKind sorts endings by what is to be done.
type endKind int

const (
	endBroken   endKind = iota // the path or the peer failed: try again
	endComeBack                // the gateway shuts down, maybe to restart: try again soon
	endReborn                  // the gateway was killed and is up again: try again at once
	endBusy                    // the gateway has too many connectors to let in
	endSilent                  // nobody answers: the gateway is away, or UDP is blocked
	endRefused                 // the gateway does not accept the token
	endRemoved                 // the connector was removed
	endReplaced                // another process holds the same token
	endLimited                 // the gateway has had too many tries at pairing
	endPortal                  // a captive portal answers in place of the gateway
	endWrongPin                // somebody else answers at the gateway's address
)

// What this side ends a tunnel, or the attempt at one, with.
var (
	errSilent       = errors.New("no answer over UDP")
	errUnfinished   = errors.New("the gateway answers over UDP, but does not finish the handshake")
	errBusy         = errors.New("the gateway takes no connections at the moment: many connectors come at once, or it shuts down")
	errNoWelcome    = errors.New("the gateway did not answer the hello")
	errNoPong       = errors.New("the gateway does not answer pings")
	errDrainTimeout = errors.New("running requests did not finish in time")
)

func kindOf(err error) endKind {
	var deny link.Deny
	if errors.As(err, &deny) {
		switch {
		case deny.Code == link.DenyShutdown:
			return endComeBack
		case deny.Code == link.DenyPairingLimit:
			return endLimited
		case deny.Retry:
			return endBroken
		default:
			return endRefused
		}
	}
	switch code, _ := link.CloseReason(err); code {
	case link.CloseShutdown:
		return endComeBack
	case link.CloseRemoved:
		return endRemoved
	case link.CloseReplaced:
		return endReplaced
	case link.CloseDenied:
		return endRefused
	}
	switch {
	case link.Reborn(err): // a gateway that knows nothing of this tunnel: it was started anew
		return endReborn
	case errors.Is(err, link.ErrPin):
		return endWrongPin
	case errors.Is(err, errPortal):
		return endPortal
	case errors.Is(err, errBusy), errors.Is(err, errNotNow):
		return endBusy
	case errors.Is(err, errSilent), errors.Is(err, errNoHTTPS):
		return endSilent
	default:
		return endBroken
	}
}

// reason says why a tunnel ended, for the log.
func reason(err error) string {
	if code, ok := link.CloseReason(err); ok {
		return "the gateway closed the tunnel: " + code.String()
	}
	switch {
	case link.Reborn(err):
		return "the gateway was restarted"
	case link.Silent(err):
		return "the gateway has not been heard of for too long"
	default:
		return strings.ReplaceAll(err.Error(), "\n", "; ") // one line per address
	}
}
