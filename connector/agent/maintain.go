package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// On a WebSocket, QUIC is tried again after pauses that double.
	firstUpgrade = time.Minute
	lastUpgrade  = 10 * time.Minute
	// movePause bounds the pauses between attempts to move to another edge.
	movePause = 2 * time.Second
)

// errTrial ends a tunnel that was drained for a new configuration that then failed.
var errTrial = errors.New("the new configuration did not work")

// maintain serves a tunnel until it ends or a successor takes over. The old tunnel then
// finishes its requests. One search for a successor runs at a time. Each event stops it, and
// maintain chooses again.
func (l *leg) maintain(ctx context.Context, s *session) (ending, *session) {
	start := time.Now()
	l.webDelay = webDelayOf(s)
	ended := make(chan error, 1)
	l.tunnels.Go(func() {
		err := panics.Do(l.Logger, "serving a tunnel", func() error { return s.serve(ctx) })
		s.close(link.CloseNone, err) // after a panic
		ended <- err
	})
	for {
		var found *handover
		search, searched := l.choose(s), make(chan struct{})
		searching, stop := context.WithCancel(ctx)
		go func() {
			defer close(searched)
			defer panics.Recover(l.Logger, "establishing another tunnel")
			found = search(searching, ctx, s)
		}()
		var err error
		over := false
		select {
		case <-searched:
			if found == nil && ctx.Err() != nil { // the tunnel drains
				err, over = <-ended, true
			}
		case <-l.wake:
		case err = <-ended:
			over = true
		}
		stop()
		<-searched
		lived := max(time.Since(start), 1)
		switch {
		case found != nil && (found.next != nil || !over):
			return ending{err: found.err, lived: lived}, found.next
		case over:
			return ending{err: err, lived: lived}, nil
		}
	}
}

// webDelayOf returns the delay of the WebSocket in the attempt after this tunnel.
func webDelayOf(s *session) time.Duration {
	if s.conn.Transport() == link.TransportWebSocket {
		return 0
	}
	return webSocketDelay
}

// handover is the result of a search: the successor of a tunnel, or why the drained
// tunnel has none.
type handover struct {
	next *session
	err  error
}

// search establishes the successor of a tunnel. A nil result keeps the tunnel. The end of
// searching stops the search until it has sent the old tunnel's drain; then only the end of ctx
// does.
type search func(searching, ctx context.Context, s *session) *handover

// choose returns the search that the tunnel needs now: the first of these whose condition is
// met.
//
//	condition                             search          ends with
//	the tunnel has ended                  idle            an event
//	a configuration is pending            renew           a tunnel with it, or its refusal
//	the leg is not needed, or the         quit            the drain of the tunnel
//	configuration leads elsewhere
//	the edge drains, or the tunnel has    move            a new tunnel
//	an older configuration
//	QUIC may replace the WebSocket        upgradeToQUIC   a tunnel over QUIC
//	otherwise                             idle            an event
func (l *leg) choose(s *session) search {
	switch {
	case s.conn.Context().Err() != nil:
		return idle
	case l.due().config != nil:
		return l.renew
	default:
		return l.chooseCurrent(s)
	}
}

// chooseCurrent is choose from the row below renew.
func (l *leg) chooseCurrent(s *session) search {
	switch {
	case l.obsolete(s):
		return l.quit
	case s.leaving.Load() || l.outdated(s):
		return l.move
	case s.config.transport == config.TransportAuto && s.conn.Transport() == link.TransportWebSocket:
		return l.upgradeToQUIC
	default:
		return idle
	}
}

// idle is the search of a tunnel that needs no successor.
func idle(searching, _ context.Context, _ *session) *handover {
	<-searching.Done()
	return nil
}

// upgradeToQUIC tries QUIC periodically, and switches to it when it works.
func (l *leg) upgradeToQUIC(searching, ctx context.Context, s *session) *handover {
	for pause := l.firstUpgrade; ; pause = min(2*pause, lastUpgrade) {
		if wait.For(searching, pause/2+l.retry.jitter(pause)) != nil {
			return nil
		}
		c := l.inUse()
		h, err := l.succeed(searching, clearance{successor, s, ctx}, c,
			dial.Runner{Dial: c.quicTo(l.currentTarget()).Dial, Limit: l.dialLimit})
		if err == nil {
			l.Logger.Info("QUIC works; switching from the WebSocket", "session", s.welcome.Session)
		}
		if h != nil || searching.Err() != nil {
			return h
		}
		l.Logger.Debug("QUIC still does not work", "reason", reason(err))
	}
}
