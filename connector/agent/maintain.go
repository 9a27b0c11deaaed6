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
	// rescuePause bounds the pauses between attempts while a tunnel is silent.
	rescuePause = 2 * time.Second
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
		wake := l.wake
		if s.silent.Load() {
			wake = nil // a new configuration waits for a working tunnel
		}
		var found *handover
		search, searched := l.choose(s), make(chan struct{})
		searching, stop := context.WithCancel(ctx)
		go func() {
			defer close(searched)
			defer panics.Recover(l.Logger, "establishing another tunnel")
			found = search(searching, ctx, s)
		}()
		var err error
		over, changed := false, false
		select {
		case <-searched:
			if found == nil && ctx.Err() != nil { // the tunnel drains
				err, over = <-ended, true
			}
		case <-wake:
		case <-s.silenceChanged:
			changed = true
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
			if errors.Is(err, errNoPong) || link.Silent(err) {
				l.webDelay = min(l.webDelay, suspectDelay) // UDP may be blocked
			}
			return ending{err: err, lived: lived}, nil
		case changed:
			l.onSilenceChange(s)
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
//	it does not answer                    rescue          a new tunnel
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
	case s.silent.Load():
		return l.rescue
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
			dial.Runner{Dial: c.quicTo(l.currentTarget()).Dial, Limit: longDialTimeout})
		if err == nil {
			l.Logger.Info("QUIC works; switching from the WebSocket", "session", s.welcome.Session)
		}
		if h != nil || searching.Err() != nil {
			return h
		}
		l.Logger.Debug("QUIC still does not work", "reason", reason(err))
	}
}

// rescue dials a new tunnel while the old one is silent. The new tunnel gets all new
// requests. Requests on the silent one may still finish if its path recovers in time.
func (l *leg) rescue(searching, ctx context.Context, s *session) *handover {
	l.webDelay = min(l.webDelay, suspectDelay) // UDP may be blocked
	for attempt := 0; ; attempt++ {
		if attempt > 0 {
			l.enter(silent, nil)
		}
		next, err := l.replaceSilent(searching, ctx, s)
		if err == nil {
			l.Logger.Warn("another tunnel replaces the silent one", "session", s.welcome.Session,
				"replaced_by", next.welcome.Session)
			return &handover{next: next}
		}
		if searching.Err() != nil {
			return nil
		}
		end := ending{err: err}
		l.countAttempt(end)
		pause := l.retry.pause(end)
		if kind := kindOf(err); kind != endRefused && kind != endWrongPin {
			pause = min(pause, rescuePause)
		}
		l.report(end, retrying, pause)
		if wait.For(searching, pause) != nil {
			return nil
		}
	}
}

// replaceSilent is one attempt of rescue.
func (l *leg) replaceSilent(searching, ctx context.Context, s *session) (*session, error) {
	c := l.inUse()
	target, ok := l.chooseTarget(c)
	if !ok {
		return nil, errNoEdge
	}
	next, err := l.race(searching, c, clearance{rescue, s, ctx}, l.runners(c, target, l.retry.dialTimeout()))
	if err == nil && next.welcome.Edge != s.welcome.Edge { // the old edge does not know the new tunnel
		if err := s.depart(); err != nil {
			s.close(link.CloseNone, err)
		}
	}
	return next, err
}
