package tunnel

import (
	"context"
	"errors"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

// A connector sends a ping every second or two, and occasionally a change. Further
// messages are read at a limited rate: they wait in the connector's memory.
const (
	messagesPerSecond = 20
	messagesAtOnce    = 100
)

// drainedGrace is how long a connector has to read that its drain is complete: the
// close may overtake the message.
const drainedGrace = 100 * time.Millisecond

// run reads the control stream until the connection ends.
func (s *Session) run() {
	err := s.hub.contain("reading from a connector", s.receive)
	s.leave()
	if errors.Is(err, link.ErrMalformed) {
		s.close(link.CloseProtocol)
	}
	s.close(link.CloseNone) // if still open
	s.hub.remove(s)
	s.log().Info("connector offline", "reason", endOf(context.Cause(s.conn.Context())), "duration", time.Since(s.since))
}

// endOf returns the reason for the end of a connection, for the log.
func endOf(err error) string {
	var closed *quic.ApplicationError
	switch {
	case errors.As(err, &closed) && closed.Remote:
		return "connector: " + link.CloseCode(closed.ErrorCode).String()
	case errors.As(err, &closed) && closed.ErrorCode != quic.ApplicationErrorCode(link.CloseNone):
		return link.CloseCode(closed.ErrorCode).String()
	case link.Silent(err):
		return "no sign of life"
	default:
		return "connection lost"
	}
}

// lostAfter is how long a connector may be silent before its running requests fail,
// on either transport and regardless of the number of connectors. Over QUIC, requests
// survive shorter outages of the path. The transports themselves time out later.
const lostAfter = 22 * time.Second

// idleTimeout is how long a connector with this heartbeat may be silent before it
// gets no further requests. By then it has missed one ping, or three if they are
// frequent, and is reconnecting.
func idleTimeout(heartbeat time.Duration) time.Duration {
	return min(3*heartbeat+8*time.Second, lostAfter)
}

// onTimeout closes an idle session, since its connector dials again. A busy session
// gets no requests until its connector is back.
func (s *Session) onTimeout() {
	active := s.active.Load()
	if active == 0 {
		s.close(link.CloseLost)
		return
	}
	s.log().Info("connector is silent", "active", active)
	s.hub.setAway(s, true)
}

// receive handles control messages until the stream ends or has been silent for too
// long: a killed connector does not close it.
func (s *Session) receive() error {
	silent := time.AfterFunc(idleTimeout(s.hub.heartbeat()), s.onTimeout)
	defer silent.Stop()
	lost := time.AfterFunc(lostAfter, func() { s.close(link.CloseLost) })
	defer lost.Stop()
	pace, spent := rate.NewLimiter(messagesPerSecond, messagesAtOnce), 1
	for {
		if err := pace.WaitN(s.conn.Context(), spent); err != nil {
			return context.Cause(s.conn.Context())
		}
		m, err := s.control.Receive()
		spent = cost(m)
		silent.Reset(idleTimeout(s.hub.heartbeat()))
		lost.Reset(lostAfter)
		if err == nil && s.hub.setAway(s, false) {
			s.rotate() // a rotation may have begun meanwhile
		}
		if errors.Is(err, link.ErrUnknownMessage) {
			continue
		}
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case link.Ping:
			next := s.hub.heartbeat()
			s.beat(next)
			s.send(link.Pong{HeartbeatMillis: int(next.Milliseconds())})
		case link.Pong:
			wait.Wake(s.pong, struct{}{})
		case link.Report:
			s.report(m)
		case link.Rotated:
			s.rotated(m)
		case link.Drain:
			if s.leave() {
				s.log().Info("connector drains", "active", s.active.Load())
				go s.finish(context.Background(), link.CloseDrained)
			}
			s.send(link.DrainOK{})
		}
	}
}

// leave stops the session from taking requests. It reports whether this call did.
func (s *Session) leave() bool {
	if s.draining.Swap(true) {
		return false
	}
	s.hub.unregister(s)
	s.retire()
	return true
}

// retire lets a session end when it is idle.
func (s *Session) retire() {
	s.draining.Store(true)
	s.stopServing()
	if s.active.Load() == 0 {
		s.idleOnce.Do(func() { close(s.idle) })
	}
}

// shutdown sends the connector a drain, waits for the last answer until ctx ends,
// and closes the connection.
func (s *Session) shutdown(ctx context.Context) {
	s.leave()
	s.send(link.Drain{})
	s.finish(ctx, link.CloseShutdown)
}

// finish waits for the last answer of a draining session until ctx ends, and closes
// the connection.
func (s *Session) finish(ctx context.Context, code link.CloseCode) {
	select {
	case <-s.idle:
		s.send(link.Drained{})
		s.wait(drainedGrace)
	case <-ctx.Done():
	case <-s.conn.Context().Done():
	}
	s.close(code)
}

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
	s.hub.counters.replaced.Add(1)
	s.leave()
	if s.hello.Instance == to.hello.Instance || s.active.Load() == 0 {
		s.close(link.CloseReplaced)
		return
	}
	s.hub.work("waiting for the end of a replaced tunnel", func() {
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
