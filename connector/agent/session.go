package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// pongTimeout is how long a gateway may take to answer a ping.
	pongTimeout = 3 * time.Second
	// pingAgain is when the next ping follows one without an answer.
	pingAgain = 500 * time.Millisecond
	// muchLater is how late this process has to be for it to have stood still:
	// frozen, or on a machine that was.
	muchLater = 500 * time.Millisecond
	// closeTimeout is how long the last goodbye of a drain may take.
	closeTimeout = 2 * time.Second
	// minHeartbeat guards against a gateway that asks for pings without pause.
	minHeartbeat = 20 * time.Millisecond
	maxHeartbeat = time.Minute
	// defaultHeartbeat is for a gateway that does not say.
	defaultHeartbeat = 3 * time.Second
)

// session is one tunnel.
type session struct {
	agent   *Agent
	conn    link.Conn
	stream  link.ControlStream
	control *link.Control
	welcome link.Welcome
	decided chan link.Message // in a pairing: its grant or deny

	heartbeat atomic.Int64  // time.Duration between pings
	pongs     chan struct{} // one for each pong
	departed  atomic.Bool   // drain was said
	agree     sync.Once
	agreed    chan struct{} // closed by its drain_ok
	silent    atomic.Bool   // a pong is overdue
	turned    chan struct{} // silent has changed
	beside    bool          // it is to take the place of a silent tunnel
	why       atomic.Value  // error: the reason, if this side ends the tunnel
	requests  sync.WaitGroup
	running   atomic.Int64 // requests
	handler   http.Handler
	updated   chan link.Updated // the answer to an update
	offers    chan link.Rotate  // the last one, until it is looked at
}

func newSession(a *Agent, conn link.Conn) *session {
	s := &session{
		agent: a, conn: conn, decided: make(chan link.Message, 1), pongs: make(chan struct{}, 1), turned: make(chan struct{}, 1),
		agreed: make(chan struct{}), updated: make(chan link.Updated, 1),
		offers: make(chan link.Rotate, 1), handler: &watched{&a.monitor, a.prober, a.proxy},
	}
	s.heartbeat.Store(int64(defaultHeartbeat))
	return s
}

// introduce says hello and waits for the welcome or, in a pairing, for pending
// or grant. If it fails, or ctx ends before, the connection is closed.
func (s *session) introduce(ctx context.Context) (answer link.Message, err error) {
	// A read of the stream knows no context; closing the connection ends it.
	stop := context.AfterFunc(ctx, func() { s.close(link.CloseNone, errNoWelcome) })
	defer func() {
		if !stop() && err == nil {
			err = errNoWelcome
		}
		if err != nil {
			s.close(link.CloseNone, err)
		}
	}()
	if s.stream, err = s.conn.Control(ctx); err != nil {
		return nil, s.explain(fmt.Errorf("opening the control stream: %w", err))
	}
	s.control = link.NewControl(s.stream)
	hello := s.agent.greeting()
	hello.Beside = s.beside
	if err := s.control.Send(hello); err != nil {
		return nil, s.explain(err)
	}
	for {
		message, err := s.control.Receive()
		if errors.Is(err, link.ErrUnknownMessage) {
			continue
		}
		if err != nil {
			return nil, s.explain(fmt.Errorf("waiting for the gateway's answer: %w", err))
		}
		switch m := message.(type) {
		case link.Welcome, link.Pending, link.Grant:
			return m, nil
		case link.Deny:
			return nil, s.agent.refused(hello, m)
		}
	}
}

// begin takes the welcome. Any other answer is one to a claim, and closes the
// connection.
func (s *session) begin(answer link.Message) error {
	welcome, ok := answer.(link.Welcome)
	if !ok {
		s.close(link.CloseProtocol, errNoWelcome)
		return errNoWelcome
	}
	welcome.Session, welcome.Version = legible(welcome.Session), legible(welcome.Version)
	s.welcome = welcome
	s.setHeartbeat(welcome.HeartbeatMillis)
	return nil
}

// explain replaces an error of a stream by that of the connection, if it is
// over: the connection's knows why.
func (s *session) explain(err error) error {
	if s.conn.Context().Err() != nil {
		return s.ended()
	}
	return err
}

// ended returns why a tunnel that is over has ended.
func (s *session) ended() error {
	if why, ok := s.why.Load().(ownEnd); ok {
		return why.error
	}
	return context.Cause(s.conn.Context())
}

// ownEnd is an error in a form that atomic.Value takes: always the same type.
type ownEnd struct{ error }

// serve takes requests until the tunnel ends, and returns why it did. When ctx
// ends, it drains the tunnel first.
func (s *session) serve(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(s.accept)
	background.Go(s.listen)
	background.Go(s.ping)
	background.Go(s.report)
	background.Go(s.rotations)
	select {
	case <-s.conn.Context().Done():
	case <-ctx.Done():
		s.drain()
	}
	// Nothing outlives the tunnel: with it end all streams, and with them the
	// contexts of the requests.
	background.Wait()
	s.requests.Wait()
	return s.ended()
}

// accept starts requests. It does nothing else: the queue of new streams is
// short.
func (s *session) accept() {
	for {
		stream, err := s.conn.AcceptStream(s.conn.Context())
		if err != nil {
			return
		}
		s.requests.Go(func() { s.request(stream) })
	}
}

// request serves one stream.
func (s *session) request(stream link.Stream) {
	s.running.Add(1)
	defer s.running.Add(-1)
	err := link.Serve(stream, s.handler)
	var defect *link.PanicError
	switch {
	case errors.As(err, &defect):
		s.agent.logger.Error("request met a defect of the connector", "session", s.welcome.Session, "error", err, "stack", string(defect.Stack))
	case err != nil:
		s.agent.logger.Debug("request ended early", "session", s.welcome.Session, "error", err)
	}
}

// listen handles the gateway's control messages.
func (s *session) listen() {
	told := false // that the gateway leaves
	for {
		message, err := s.control.Receive()
		if errors.Is(err, link.ErrUnknownMessage) {
			continue // of a newer gateway
		}
		if err != nil {
			s.fail(err)
			return
		}
		switch m := message.(type) {
		case link.Ping:
			err = s.send(link.Pong{})
		case link.Pong:
			s.setHeartbeat(m.HeartbeatMillis)
			select {
			case s.pongs <- struct{}{}:
			default: // one is waiting already
			}
		case link.Drain:
			if !told {
				s.agent.logger.Info("gateway is shutting down", "session", s.welcome.Session)
			}
			told = true
			err = s.send(link.DrainOK{})
		case link.DrainOK:
			s.agree.Do(func() { close(s.agreed) })
		case link.Updated:
			select {
			case s.updated <- m:
			default: // nobody asked
			}
		case link.Rotate:
			s.offer(m)
		case link.Grant, link.Deny:
			select {
			case s.decided <- m:
			default: // nobody asked, or it is decided already
			}
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// report sends what is known of the upstreams, now and whenever it changes.
func (s *session) report() {
	var last link.Report
	for {
		news := s.agent.prober.news()
		if next := s.agent.healthReport(); !reflect.DeepEqual(next, last) {
			if err := s.send(next); err != nil {
				return // which listen and ping notice, too
			}
			last = next
		}
		select {
		case <-s.conn.Context().Done():
			return
		case <-news:
		}
		select {
		case <-s.conn.Context().Done():
			return
		case <-time.After(reportRest):
		}
	}
}

// send writes one control message; a gateway that does not read it in time is
// lost.
func (s *session) send(m link.Message) error {
	if err := s.stream.SetWriteDeadline(time.Now().Add(s.agent.pongTimeout)); err != nil {
		return err
	}
	return s.control.Send(m)
}

// fail ends a tunnel whose control stream has failed. That is mostly because
// the tunnel has ended already, and then this changes nothing.
func (s *session) fail(err error) {
	if errors.Is(err, link.ErrMalformed) {
		s.agent.logger.Error("gateway breaks the protocol", "session", s.welcome.Session, "error", err)
		s.close(link.CloseProtocol, err)
		return
	}
	// The gateway may be about to say why it closes.
	select {
	case <-s.conn.Context().Done():
	case <-time.After(closeTimeout):
		s.close(link.CloseLost, err)
	}
}

// setHeartbeat follows what the gateway asks for, within reason.
func (s *session) setHeartbeat(milliseconds int) {
	if milliseconds > 0 {
		s.heartbeat.Store(int64(min(max(time.Duration(milliseconds)*time.Millisecond, minHeartbeat), maxHeartbeat)))
	}
}

// ping asks the gateway for a sign of life, again and again. QUIC alone would
// notice a gateway that was killed only at its idle timeout; a ping that reaches
// one that was started anew is answered with a stateless reset. While an answer
// is missing, packets follow faster, since only they can meet the new gateway.
//
// A tunnel whose gateway was heard of before does not end by silence alone: the
// path may come back. See rescue.
func (s *session) ping() {
	beat := time.NewTimer(0)
	defer beat.Stop()
	lost := time.NewTimer(s.agent.pongTimeout)
	lost.Stop()
	defer lost.Stop()
	var due time.Time // when lost is to fire
	wait := func(d time.Duration) { due = time.Now().Add(d); lost.Reset(d) }
	heard, missing := false, 0 // missing: beats without an answer
	for {
		select {
		case <-s.conn.Context().Done():
			return
		case <-lost.C:
			if breathe(); len(s.pongs) > 0 { // it was this machine that was late
				continue
			}
			if time.Since(due) > muchLater { // so was the answer's reader, if there is one
				wait(s.agent.pongTimeout)
				continue
			}
			rest := s.agent.silenceLimit - s.agent.pongTimeout
			if !heard || rest <= 0 || s.silent.Load() || s.departed.Load() && s.running.Load() == 0 {
				s.close(link.CloseLost, errNoPong)
				return
			}
			s.turn(true)
			wait(rest)
		case <-s.pongs:
			heard, missing = true, 0
			lost.Stop()
			s.wary(false)
			if s.silent.Load() {
				s.turn(false)
			}
			beat.Reset(time.Duration(s.heartbeat.Load()))
		case <-beat.C:
			if missing++; missing == 1 {
				wait(s.agent.pongTimeout)
				s.wary(true)
			} else {
				s.nudge()
			}
			if !s.silent.Load() || missing%pingEvery == 0 {
				if err := s.send(link.Ping{}); err != nil {
					s.fail(err)
					return
				}
			}
			beat.Reset(pingAgain)
		}
	}
}

// drain leaves the tunnel without breaking a request: the gateway sends no more
// of them, and closes when it has the last answer.
func (s *session) drain() {
	s.agent.logger.Info("draining", "session", s.welcome.Session, "timeout", s.agent.drainTimeout.String())
	s.agent.monitor.draining()
	if s.endEmpty() {
		return
	}
	if err := s.depart(); err != nil {
		s.close(link.CloseNone, err)
		return
	}
	select {
	case <-s.conn.Context().Done():
	case <-time.After(s.agent.drainTimeout):
		s.agent.logger.Warn("running requests did not finish in time", "session", s.welcome.Session)
		s.close(link.CloseNone, errDrainTimeout)
	}
}

// depart announces that this side leaves, once.
func (s *session) depart() error {
	if s.departed.Swap(true) {
		return nil
	}
	return s.send(link.Drain{})
}

// close ends the tunnel at once. Its reason counts only if nobody else has ended
// the tunnel before.
func (s *session) close(code link.CloseCode, why error) {
	if s.conn.Context().Err() == nil {
		s.why.CompareAndSwap(nil, ownEnd{why})
	}
	s.conn.Close(code, "")
}

// status tells of a tunnel that is up, and how to learn its round trip time.
func (s *session) status() (TunnelStatus, func() time.Duration) {
	return TunnelStatus{
		Session: s.welcome.Session, Remote: s.conn.RemoteAddr().String(), Transport: s.conn.Transport(), GatewayVersion: s.welcome.Version,
	}, s.conn.RTT
}
