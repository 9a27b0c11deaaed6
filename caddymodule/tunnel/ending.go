package tunnel

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// aliveTimeout is how long a connector may take to answer a ping on a tunnel that is replaced, in
	// addition to the round trip. Models may keep its processors busy.
	aliveTimeout = 3 * time.Second
	// reviewPause bounds the pause until the next review, so that it notices when the clock was set, and soon
	// lets go of a session that has ended.
	reviewPause = time.Minute
)

// stop stops the session from taking requests. Running requests continue. It reports whether this
// call stopped it.
func (s *Session) stop() bool {
	if s.draining.Swap(true) {
		return false
	}
	s.hub.unregister(s)
	s.stopServing()
	if s.active.Load() == 0 {
		s.idleOnce.Do(func() { close(s.idle) })
	}
	return true
}

// close ends the session at once. Its running requests fail.
func (s *Session) close(code link.CloseCode) {
	s.stop()
	s.end(code)
}

// refuse is close with a reason for the connector, whose token is no longer valid.
func (s *Session) refuse(d link.Deny) {
	s.stop()
	s.log().Info("closing a tunnel whose token is no longer valid", "reason", d.Message)
	_ = s.conn.Close(link.CloseDenied, d.Reason())
}

// review ends the session if its connector or secret is no longer valid. A secret that will end is
// reviewed again at its end.
func (s *Session) review() {
	valid := s.hub.options.Load().Valid
	if valid == nil || s.conn.Context().Err() != nil {
		return
	}
	until, err := valid(s.connector)
	switch {
	case errors.Is(err, ErrRotated):
		s.refuse(denyRotated)
	case err != nil:
		s.close(link.CloseRemoved)
	case !until.IsZero() && !s.reviewDue.Swap(true):
		time.AfterFunc(min(time.Until(until), reviewPause), func() {
			_ = s.hub.contain("reviewing a token", func() error {
				s.reviewDue.Store(false)
				s.review()
				return nil
			})
		})
	}
}

// finish ends the session when its running requests are complete, or when ctx ends.
func (s *Session) finish(ctx context.Context, code link.CloseCode) {
	s.stop()
	select {
	case <-s.idle:
	case <-ctx.Done():
	case <-s.conn.Context().Done():
	}
	s.close(code)
}

// replace ends the session of a connector that has sent a hello on another tunnel.
//
// Such a hello follows the loss of the former tunnel, a crash or a takeover: the requests finish if the former tunnel
// still answers.
func (s *Session) replace() {
	s.stop()
	s.hub.counters.replaced.Add(1)
	if s.active.Load() == 0 {
		s.close(link.CloseReplaced)
		return
	}
	s.hub.work("waiting for the end of a replaced tunnel", func() {
		defer s.close(link.CloseReplaced) // after a panic, too
		if s.alive() {
			s.log().Info("another tunnel of the connector takes over; this one finishes its requests",
				"active", s.active.Load())
			s.finish(context.Background(), link.CloseReplaced)
		}
	})
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
