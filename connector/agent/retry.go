package agent

import (
	"time"

	"github.com/postern-dev/postern/connector/dial"
)

const (
	firstPause = 500 * time.Millisecond
	longPause  = 30 * time.Second
	// lastRefusal is the ceiling after repeated refusals.
	lastRefusal = 5 * time.Minute
	// noRoutePause is the ceiling while this machine has no route to the gateway. An
	// attempt is cheap, and the route may return any moment.
	noRoutePause = 2 * time.Second
	// resetPause is the ceiling after a stateless reset: the gateway is up again.
	resetPause = 200 * time.Millisecond
	// healthyAfter is how long a tunnel must live to reset the pauses: a gateway that
	// breaks every tunnel must not be dialled twice a second.
	healthyAfter = 5 * time.Second

	// A UDP port without a listener stays silent. Short first attempts find a gateway
	// that has just restarted; longer ones work on a slow path.
	firstDialTimeout = 2 * time.Second
	longDialTimeout  = 10 * time.Second
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

func (r *retry) reset() { r.failures = 0 }

// pause returns how long to wait after an ending.
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
		// Only an operator, or time, can help. Half of the pause is fixed, so that two
		// connectors with one token do not keep replacing each other.
		return longPause/2 + r.jitter(longPause/2)
	case kind == endReset:
		// The connectors notice it by their pings, which are already spread in time.
		r.reset()
		return r.jitter(resetPause)
	case end.lived >= healthyAfter, kind == endGoingAway && end.lived > 0:
		r.reset()
	}
	ceiling := longPause
	if r.failures < 6 { // 0.5 s × 2⁶ is above 30 s
		ceiling = firstPause << r.failures
	}
	if kindOf(end.err) == endBusy {
		ceiling = min(ceiling, busyPause)
	}
	if ceiling >= noRoutePause && end.lived == 0 && dial.NoRoute(end.err) {
		return r.jitter(noRoutePause) // does not count as a failure
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
