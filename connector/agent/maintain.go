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
// finishes its requests. One search for a successor runs at a time.
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
		look, searched := l.choose(s), make(chan struct{})
		search, stop := context.WithCancel(ctx)
		go func() {
			defer close(searched)
			defer panics.Recover(l.Logger, "looking for another tunnel")
			found = look(search, ctx, s)
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

// choose returns the search for a successor that the tunnel needs now. A search ends with
// its first context; once it has begun to replace the tunnel, with the second one. A nil
// result keeps the tunnel.
func (l *leg) choose(s *session) func(search, ctx context.Context, s *session) *handover {
	switch {
	case s.conn.Context().Err() != nil:
		return rest
	case s.silent.Load():
		return l.rescue
	case l.due().config != nil:
		return l.renew
	default:
		return l.chooseCurrent(s)
	}
}

// chooseCurrent is choose for a tunnel that answers, with the current configuration.
func (l *leg) chooseCurrent(s *session) func(search, ctx context.Context, s *session) *handover {
	switch {
	case l.obsolete(s):
		return l.quit
	case s.leaving.Load() || l.outdated(s):
		return l.move
	case s.config.transport == config.TransportAuto && s.conn.Transport() == link.TransportWebSocket:
		return l.upgradeToQUIC
	default:
		return rest
	}
}

// rest is the search of a tunnel that needs no successor.
func rest(search, _ context.Context, _ *session) *handover {
	<-search.Done()
	return nil
}

// upgradeToQUIC tries QUIC periodically, and switches to it when it works.
func (l *leg) upgradeToQUIC(search, ctx context.Context, s *session) *handover {
	for pause := l.firstUpgrade; ; pause = min(2*pause, lastUpgrade) {
		if wait.For(search, pause/2+l.retry.jitter(pause)) != nil {
			return nil
		}
		c := l.inUse()
		h, err := l.succeed(search, permit{successor, s, ctx}, c,
			dial.Runner{Dial: c.quicTo(l.aimed()).Dial, Limit: longDialTimeout})
		if err == nil {
			l.Logger.Info("QUIC works; switching from the WebSocket", "session", s.welcome.Session)
		}
		if h != nil || search.Err() != nil {
			return h
		}
		l.Logger.Debug("QUIC still does not work", "reason", reason(err))
	}
}

// rescue dials a new tunnel while the old one is silent. The new tunnel gets all new
// requests. Requests on the silent one may still finish if its path recovers in time.
func (l *leg) rescue(search, ctx context.Context, s *session) *handover {
	l.webDelay = min(l.webDelay, suspectDelay) // UDP may be blocked
	for attempt := 0; ; attempt++ {
		if attempt > 0 {
			l.enter(silent, nil)
		}
		next, err := l.replaceSilent(search, ctx, s)
		if err == nil {
			l.Logger.Warn("another tunnel replaces the silent one", "session", s.welcome.Session, "replaced_by",
				next.welcome.Session)
			return &handover{next: next}
		}
		if search.Err() != nil {
			return nil
		}
		end := ending{err: err}
		l.missed(end)
		pause := l.retry.pause(end)
		if kind := kindOf(err); kind != endRefused && kind != endWrongPin {
			pause = min(pause, rescuePause)
		}
		l.report(end, retrying, pause)
		if wait.For(search, pause) != nil {
			return nil
		}
	}
}

// replaceSilent is one attempt of rescue.
func (l *leg) replaceSilent(search, ctx context.Context, s *session) (*session, error) {
	c := l.inUse()
	target, ok := l.aim(c)
	if !ok {
		return nil, errNoEdge
	}
	next, err := l.race(search, c, permit{rescue, s, ctx}, l.runners(c, target, l.retry.dialTimeout()))
	if err == nil && next.welcome.Edge != s.welcome.Edge { // which does not know that it is replaced
		if err := s.depart(); err != nil {
			s.close(link.CloseNone, err)
		}
	}
	return next, err
}
