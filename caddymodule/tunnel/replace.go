package tunnel

import (
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// aliveTimeout is how long a connector that is being replaced by another process may
// take to answer a ping, in addition to the round trip.
const aliveTimeout = time.Second

// yield ends a session after the registry has replaced it.
//
// If the successor is of the same process, this connection is lost, and its requests
// cannot succeed. If it is of another process, that may be a restart after a crash or
// an upgrade. Only a connector that is still alive gets to finish its requests. This
// includes one whose drain arrives after it was replaced.
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

// finished reports whether a session that takes no further requests has none left.
func (s *Session) finished() bool {
	select {
	case <-s.idle:
		return true
	default:
		return false
	}
}

// alive pings the connector and reports whether it answers in time.
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
