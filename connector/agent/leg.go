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
	errTaken  = errors.New("the new configuration has replaced the tunnel")
	errNoEdge = errors.New("no other edge takes tunnels")
)

// leg keeps one tunnel up. An agent has one leg, and in a cluster as many as the gateway asks
// for. The first leg dials the server of the token, and edges if that fails.
type leg struct {
	*instance
	number int
	wake   chan struct{} // of capacity 1: the edges have changed

	webDelay time.Duration // head start of QUIC in the next attempt
	retry    retry

	target link.Edge // to dial; zero: the server of the token. Guarded by instance.mu
	failed bool      // the last attempt at target failed. Guarded by instance.mu

	phase phase // guarded by monitor.mu
}

// newLeg returns the next leg, with the limits of the first one.
func (i *instance) newLeg(limits retry) *leg {
	l := &leg{
		instance: i, number: len(i.legs), wake: make(chan struct{}, 1), webDelay: webSocketDelay,
		retry: retry{random: limits.random},
	}
	i.legs = append(i.legs, l)
	l.enter(StateConnecting, nil) // run dials at once
	return l
}

// run keeps the tunnel up until ctx ends, and then returns nil. An error ends the agent.
func (l *leg) run(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			l.enter(StateConnecting, nil)
		}
		end := l.runOnce(ctx)
		if ctx.Err() != nil || l.remove() {
			break
		}
		if kindOf(end.err) == endRemoved {
			l.known.Store(false) // refusals are final again
		}
		if l.yields.Load() && kindOf(end.err) == endReplaced {
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
	s, err := l.connect(ctx)
	if err != nil {
		return ending{err: err}
	}
	for {
		attributes := []any{
			"remote", s.conn.RemoteAddr().String(), "rtt", s.conn.RTT().Round(10 * time.Microsecond).String(),
			"connector", l.config.hello.Connector, "session", s.welcome.Session, "gateway_version", s.welcome.Version,
			"transport", s.conn.Transport(),
		}
		if s.welcome.Edge != "" {
			attributes = append(attributes, "edge", s.welcome.Edge)
		}
		l.Logger.Info("connected", attributes...)
		l.online(s)
		l.known.Store(true)
		l.connected()
		l.join(ctx, s)
		end, next := l.maintain(ctx, s)
		if next == nil {
			return end
		}
		s = next
	}
}

// wakeOthers wakes the other legs, such as after the loss of this leg's tunnel. Legs without a
// tunnel dial at once.
func (l *leg) wakeOthers() {
	for _, other := range l.allLegs() {
		if other != l {
			wait.Wake(other.wake, struct{}{})
		}
	}
}
