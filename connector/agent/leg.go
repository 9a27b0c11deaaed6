package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// maxLegs bounds the number of legs, whatever the gateway asks for.
	maxLegs = 2
	// legPause is the delay of the next leg, as the first one serves by then.
	legPause = time.Second
)

var (
	errTaken  = errors.New("another process has taken the tunnel over")
	errNoEdge = errors.New("no other edge takes tunnels")
	errLeft   = errors.New("the tunnel was left for the new configuration")
)

// leg keeps one tunnel up. An agent has one leg, and in a cluster as many as the gateway asks
// for. The first leg dials the server of the token, and edges if that fails.
type leg struct {
	*Agent
	number int
	wake   chan struct{} // of capacity 1: the pending configuration or the edges have changed

	webDelay time.Duration // head start of QUIC in the next attempt
	retry    retry

	target link.Edge // to dial; zero: the server of the token. Guarded by Agent.mu
	failed bool      // the last attempt at target failed. Guarded by Agent.mu

	phase phase // guarded by monitor.mu
}

// newLeg returns the next leg, with the limits of the first one.
func (a *Agent) newLeg(limits retry) *leg {
	l := &leg{
		Agent: a, number: len(a.legs), wake: make(chan struct{}, 1), webDelay: webSocketDelay,
		retry: retry{random: limits.random},
	}
	a.legs = append(a.legs, l)
	l.enter(connecting, nil) // run dials at once
	return l
}

// run keeps the tunnel up until ctx ends, and then returns nil. An error ends the agent.
func (l *leg) run(ctx context.Context) error {
	for first := true; ctx.Err() == nil && !l.dismiss(); first = false {
		if !first {
			l.enter(connecting, nil)
		}
		end := l.runOnce(ctx)
		if ctx.Err() != nil {
			break
		}
		if kindOf(end.err) == endRemoved {
			l.known.Store(false) // refusals are final again
		}
		if l.UntilReplaced && kindOf(end.err) == endReplaced {
			return errTaken
		}
		if fatal := l.fatal(end.err); fatal != nil {
			return fatal
		}
		l.noteEnd(end)
		pause := l.retry.pause(end)
		l.report(end, pause)
		if end.lived > 0 {
			l.wakeOthers()
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-time.After(pause):
		}
	}
	return nil
}

// runOnce establishes a tunnel, and serves it and its successors until they end.
func (l *leg) runOnce(ctx context.Context) ending {
	s, err := l.establish(ctx)
	if err != nil {
		return ending{err: err}
	}
	for {
		attributes := []any{
			"remote", s.conn.RemoteAddr().String(), "rtt", s.conn.RTT().Round(10 * time.Microsecond).String(),
			"connector", s.config.hello.Connector, "session", s.welcome.Session, "gateway_version", s.welcome.Version,
			"transport", s.conn.Transport(),
		}
		if s.welcome.Edge != "" {
			attributes = append(attributes, "edge", s.welcome.Edge)
		}
		l.Logger.Info("connected", attributes...)
		l.online(s)
		l.known.Store(true)
		l.join(ctx, s)
		end, next := l.maintain(ctx, s)
		if next == nil {
			return end
		}
		s = next
	}
}

// up reports whether the leg has a tunnel that answers.
func (l *leg) up() bool {
	l.monitor.mu.Lock()
	defer l.monitor.mu.Unlock()
	return states[l.phase.state].shown == StateOnline
}

// leads reports whether this leg handles the pending configuration: it is the first one with
// a tunnel, or no leg has one.
func (l *leg) leads() bool {
	for _, other := range l.allLegs() {
		if other.up() {
			return other == l
		}
	}
	return l.number == 0
}

// due returns the pending configuration if this leg handles it.
func (l *leg) due() pending {
	if p := l.next(); p.config != nil && l.leads() {
		return p
	}
	return pending{}
}

// wakeOthers wakes the other legs, such as after the loss of this leg's tunnel. Legs without a
// tunnel dial at once. One of the legs with a tunnel handles the pending configuration.
func (l *leg) wakeOthers() {
	for _, other := range l.allLegs() {
		if other != l {
			wait.Wake(other.wake, struct{}{})
		}
	}
}
