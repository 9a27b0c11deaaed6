package agent

import (
	"context"
	"time"
)

// legPause bounds the random delay of the first dial to an edge: other tunnels serve meanwhile.
const legPause = time.Second

// leg keeps one tunnel up. An instance runs one leg, and in a cluster one for each edge. The first leg dials the server
// of the token first, and then its edge or that server.
type leg struct {
	*instance
	wake chan struct{} // of capacity 1: the edges have changed

	webDelay time.Duration // head start of QUIC in the next attempt
	retry    retry

	edge    string // its name; "": unknown yet. Guarded by instance.mu
	byToken bool   // the next dial is to the server of the token. Guarded by instance.mu

	phase phase // guarded by monitor.mu
}

// newLeg adds a leg. random returns random numbers for its pauses.
func (i *instance) newLeg(random func() float64) *leg {
	l := &leg{
		instance: i, wake: make(chan struct{}, 1), webDelay: webSocketDelay, retry: retry{random: random},
	}
	i.legs = append(i.legs, l)
	l.enter(StateConnecting, nil) // run dials at once
	return l
}

// run keeps the tunnel up until ctx ends, and then returns nil. An error ends the agent.
func (l *leg) run(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		if l.retired.Load() {
			<-ctx.Done()
			break
		}
		if !first {
			l.enter(StateConnecting, nil)
		}
		end := l.runOnce(ctx)
		if ctx.Err() != nil || l.remove() {
			break
		}
		if kindOf(end.err) == endRemoved {
			l.wasOnline.Store(false) // refusals are final again
		}
		if kindOf(end.err) == endReplaced && !l.awaitTakeover(ctx) {
			break
		}
		if fatal := l.fatal(end.err); fatal != nil {
			return fatal
		}
		l.alternateTarget(end)
		pause := l.retry.pause(end)
		l.enterWaiting(end, pause)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-time.After(pause):
		}
		if l.remove() {
			break
		}
	}
	return nil
}

// awaitTakeover waits if a second instance has replaced the leg's tunnel. It reports whether the leg goes on: the
// takeover has failed.
func (l *leg) awaitTakeover(ctx context.Context) bool {
	for l.yields.Load() && ctx.Err() == nil {
		l.closeYielded()
		select {
		case <-ctx.Done():
		case <-l.wake:
		}
	}
	return ctx.Err() == nil
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
		l.wasOnline.Store(true)
		l.closeOnline()
		l.join(s)
		end, next := l.maintain(ctx, s)
		if next == nil {
			return end
		}
		s = next
	}
}
