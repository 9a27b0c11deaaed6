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

// run reads the control stream until the connection ends.
func (s *Session) run() {
	code := link.CloseNone // if the connection is still open
	if err := s.hub.contain("reading from a connector", s.receive); errors.Is(err, link.ErrMalformed) {
		code = link.CloseProtocol
	}
	s.close(code)
	s.hub.remove(s)
	reason := endReason(context.Cause(s.conn.Context()))
	s.log().Info("connector offline", "reason", reason, "duration", time.Since(s.since))
}

// endReason returns the reason for the end of a connection, for the log.
func endReason(err error) string {
	closed, ok := errors.AsType[*quic.ApplicationError](err)
	switch {
	case ok && closed.Remote:
		return "connector: " + link.CloseCode(closed.ErrorCode).String()
	case ok && closed.ErrorCode != quic.ApplicationErrorCode(link.CloseNone):
		return link.CloseCode(closed.ErrorCode).String()
	case link.Silent(err):
		return "no sign of life"
	default:
		return "connection lost"
	}
}

// lostAfter is how long a connector may send no message before its running requests fail, regardless of the
// number of connectors. It applies to a program that hangs while its QUIC answers: on a dead path, QUIC's idle
// timeout comes first.
const lostAfter = 22 * time.Second

// recordPing records a ping. next is the time until the next one. It returns the time until two are overdue.
func (s *Session) recordPing(next time.Duration) time.Duration {
	overdue := 2*next + time.Second/2
	at := time.Now().Add(overdue)
	s.overdue.Store(&at)
	return overdue
}

// onSilence is called when two pings are overdue. If nothing else arrives for half a second, the connector gets no
// requests until it is back, and those whose answers have not begun fail. They are not sent elsewhere, because a model
// may have seen them.
func (s *Session) onSilence() {
	received := func() uint64 { return s.conn.ConnectionStats().PacketsReceived }
	// Pings may be behind an answer on a slow line, or not be read yet because this process was frozen.
	for {
		before := received()
		time.Sleep(time.Second / 2)
		if time.Now().Before(*s.overdue.Load()) || s.conn.Context().Err() != nil {
			return
		}
		if received() == before {
			break
		}
	}
	s.hub.setSilent(s, true)
	s.unansweredMu.Lock()
	defer s.unansweredMu.Unlock()
	s.log().Info("connector is silent", "active", s.active.Load(), "unanswered", len(s.unanswered))
	for o := range s.unanswered {
		o.wasReset = true
		link.Refuse(o, link.CodeSilent)
	}
	clear(s.unanswered)
}

// setUnanswered records whether a request waits for the head of its answer. It reports whether onSilence has reset it.
func (s *Session) setUnanswered(o *openStream, waits bool) (wasReset bool) {
	s.unansweredMu.Lock()
	defer s.unansweredMu.Unlock()
	if delete(s.unanswered, o); waits {
		s.unanswered[o] = true
	}
	return o.wasReset
}

// receive handles control messages until the stream ends or has been silent for too
// long: a killed connector does not close it.
func (s *Session) receive() error {
	silent := time.AfterFunc(time.Until(*s.overdue.Load()), s.onSilence)
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
		lost.Reset(lostAfter)
		if err == nil {
			s.hub.setSilent(s, false)
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
			silent.Reset(s.recordPing(next))
			s.shortestRTT() // measures it
			s.send(link.Pong{HeartbeatMillis: int(next.Milliseconds())})
		case link.Pong:
			wait.Wake(s.pong, struct{}{})
		case link.Report:
			s.report(m)
		case link.Drain:
			if s.stop() {
				s.log().Info("connector drains", "active", s.active.Load())
				s.hub.work("waiting for the end of a drained tunnel", func() {
					s.finish(context.Background(), link.CloseDrained)
				})
			}
			s.send(link.DrainOK{})
		}
	}
}
