package tunnel

import (
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// aliveTimeout is how long a connector whose place another process takes may take
// to show that it still is there, in addition to the round trip.
const aliveTimeout = time.Second

// yield gives a session's place to its successor, which the registry has already.
// One of the same process means that this connection is lost, if that process may
// not know it: nothing on it can end well. Another process may be one that was
// started after a crash, or that takes over in an upgrade: only a connector that
// lives finishes what it has begun. One that has just sent a drain does so as well:
// the registry gave its place away before that arrived.
func (s *Session) yield(to *Session) {
	s.leave()
	if s.hello.Instance == to.hello.Instance || s.finished() {
		s.close(link.CloseReplaced)
		return
	}
	s.hub.running.Go(func() {
		defer s.close(link.CloseReplaced)
		if !s.alive() {
			return
		}
		s.log().Info("another process of the connector takes over; this one finishes its requests", "active", s.active.Load())
		select {
		case <-s.idle:
			s.wait(drainedGrace)
		case <-s.conn.Context().Done():
		}
	})
}

// finished reports whether a session that takes no further requests has none.
func (s *Session) finished() bool {
	select {
	case <-s.idle:
		return true
	default:
		return false
	}
}

// alive asks the connector for a sign of life.
func (s *Session) alive() bool {
	s.send(link.Ping{})
	select {
	case <-s.pong:
		return true
	case <-s.conn.Context().Done():
	case <-time.After(aliveTimeout + 2*s.conn.RTT()):
	}
	return false
}
