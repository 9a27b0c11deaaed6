package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// silenceLimit is how long a tunnel may be silent that was not replaced. QUIC
	// itself bears no more.
	silenceLimit = 30 * time.Second
	// rescueMoment is how long a new connection waits for the silent tunnel: the
	// path that leads the one to the gateway may be that of the other. It is far
	// below the gateway's patience for a hello.
	rescueMoment = 1500 * time.Millisecond
	// rescuePause bounds the pauses between attempts beside a silent tunnel.
	rescuePause = 2 * time.Second
	// pingEvery is how many of the beats in silence have a ping, which waits in
	// the stream; the others just send the last packet once more.
	pingEvery = 2
)

// errHeard ends an attempt that is not needed any more.
var errHeard = errors.New("the tunnel is alive, or was ended on purpose")

// rescue dials beside a tunnel that is silent. The new connection says no hello
// before that had its moment to come back. Hereafter it takes the requests, and
// those of the silent tunnel may still finish, if its path comes back in time:
// also those that are on their way, of which this side knows nothing yet.
func (a *Agent) rescue(search, ctx context.Context, s *session, found chan<- handover) {
	a.webDelay = min(a.webDelay, suspectDelay) // UDP may be blocked
	may := func(_ context.Context, next *session) (context.Context, error) {
		err := s.giveMoment(search)
		next.beside = s.conn.Context().Err() == nil
		return ctx, err
	}
	for {
		a.monitor.connecting()
		next, answer, err := a.connect(search, may)
		if err == nil {
			err = next.begin(answer)
		}
		if err == nil {
			a.logger.Warn("another tunnel takes the place of one that is silent", "session", s.welcome.Session, "replaced_by", next.welcome.Session)
			found <- handover{next: next}
			return
		}
		if search.Err() != nil {
			return
		}
		end := ending{err: err}
		pause := a.retry.pause(end)
		if kind := kindOf(err); kind != endRefused && kind != endWrongPin {
			pause = min(pause, rescuePause)
		}
		a.report(end, pause)
		select {
		case <-search.Done():
			return
		case <-time.After(pause):
		}
	}
}

// giveMoment waits until a silent tunnel has had its moment. An error means that
// it needs no successor.
func (s *session) giveMoment(search context.Context) error {
	select {
	case <-search.Done():
	case <-s.conn.Context().Done():
	case <-time.After(s.agent.moment):
		return nil
	}
	if s.conn.Context().Err() == nil {
		return errHeard
	}
	switch kindOf(s.ended()) {
	case endReplaced, endRemoved:
		return errHeard
	default:
		return nil // there is nothing more to wait for
	}
}

// endEmpty ends a tunnel that is silent and has no requests to wait for.
func (s *session) endEmpty() bool {
	if !s.silent.Load() || s.running.Load() > 0 {
		return false
	}
	s.close(link.CloseLost, errNoPong)
	return true
}

// turn notes that a tunnel fell silent, or is heard again.
func (s *session) turn(silent bool) {
	s.silent.Store(silent)
	select {
	case s.turned <- struct{}{}:
	default: // the last turn was not seen yet, and need not be
	}
}

// turnedNow tells of the turn.
func (a *Agent) turnedNow(s *session) {
	if s.silent.Load() {
		a.logger.Warn("the gateway is silent; dialling it beside the tunnel", "session", s.welcome.Session, "fix", fixFor(errSilent))
		a.monitor.silent(errNoPong.Error(), fixFor(errSilent))
		return
	}
	a.logger.Info("the gateway is heard again; the tunnel stays", "session", s.welcome.Session)
	a.retry.reset()
	a.webDelay = webDelayOf(s)
	a.monitor.heard(s.status())
}

// nudge makes the tunnel's path be probed, where that can be done.
func (s *session) nudge() {
	if q, ok := s.conn.(*quicTunnel); ok {
		q.socket.again()
	}
}

// wary is called when an answer is waited for, and when it has come.
func (s *session) wary(waiting bool) {
	if q, ok := s.conn.(*quicTunnel); ok {
		q.socket.arm(waiting)
	}
}
