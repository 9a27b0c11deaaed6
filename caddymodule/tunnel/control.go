package tunnel

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/connector/link"
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
	err := s.receive()
	s.leave()
	if errors.Is(err, link.ErrMalformed) {
		s.close(link.CloseProtocol)
	}
	s.close(link.CloseNone) // if still open
	s.hub.remove(s)
	s.log().Info("connector offline", "reason", s.ended(err), "duration", s.hub.options.Load().Now().Sub(s.since))
}

// ended returns the reason for the session's end, for the log.
func (s *Session) ended(err error) string {
	if code, ok := link.CloseReason(err); ok {
		return "connector: " + code.String()
	}
	if link.Silent(context.Cause(s.conn.Context())) {
		return "no sign of life"
	}
	if code := s.reason.Load(); code > 1 {
		return link.CloseCode(code - 1).String()
	}
	return "connection lost"
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
			s.heartbeat.beat(next)
			s.send(link.Pong{HeartbeatMillis: int(next.Milliseconds())})
		case link.Pong:
			select {
			case s.pong <- struct{}{}:
			default: // no ping is waiting for it
			}
		case link.Update:
			s.send(s.update(m))
		case link.Report:
			s.report(m)
		case link.Rotated:
			s.rotated(m)
		case link.Drain:
			if s.leave() {
				s.log().Info("connector drains", "active", s.active.Load())
				go s.drain()
			}
			s.send(link.DrainOK{})
		}
	}
}

// update changes the connector's upstreams and routes for all later requests.
func (s *Session) update(m link.Update) link.Updated {
	changed := s.hello
	changed.Upstreams, changed.Routes = m.Upstreams, m.Routes
	if err := changed.Check(); err != nil {
		return link.Updated{Error: err.Error()}
	}
	s.offer.Store(&m)
	s.log().Info("connector changed its configuration", "upstreams", len(m.Upstreams), "routes", len(m.Routes))
	return link.Updated{}
}

// send writes one control message. If the connector does not read it in time, the
// session is closed: the message may have been written in part.
func (s *Session) send(m link.Message) {
	if s.peer.send(m) != nil {
		s.close(link.CloseLost)
	}
}

// leave stops the session from taking requests. It reports whether this call did.
func (s *Session) leave() bool {
	if s.draining.Swap(true) {
		return false
	}
	s.stopServing()
	s.hub.unregister(s)
	if s.active.Load() == 0 {
		s.idleOnce.Do(func() { close(s.idle) })
	}
	return true
}

// drain waits for the last answer after the connector has announced its drain, and
// closes the connection.
func (s *Session) drain() {
	select {
	case <-s.idle:
		s.send(link.Drained{})
		s.wait(drainedGrace)
		s.close(link.CloseDrained)
	case <-s.conn.Context().Done():
	}
}

// shutdown sends the connector a drain, waits for the last answer until ctx ends,
// and closes the connection.
func (s *Session) shutdown(ctx context.Context) {
	s.leave()
	s.send(link.Drain{})
	select {
	case <-s.idle:
		s.send(link.Drained{})
		s.wait(drainedGrace)
		s.close(link.CloseShutdown)
	case <-ctx.Done():
		s.close(link.CloseShutdown)
	case <-s.conn.Context().Done():
	}
}
