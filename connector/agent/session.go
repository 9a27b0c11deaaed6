package agent

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

const (
	// closeTimeout is how long the gateway has to send why it closes.
	closeTimeout = 2 * time.Second
	// housekeepingRest is the time between two reports to the gateway, and between two
	// rotations.
	housekeepingRest = time.Second
)

// session is one tunnel.
type session struct {
	agent   *Agent
	config  *configuration
	conn    *dial.Conn
	stream  *quic.Stream
	control *link.Control
	welcome link.Welcome

	heartbeat      atomic.Int64  // time.Duration between pings
	pongs          chan struct{} // one for each pong
	departed       atomic.Bool   // drain was sent
	agree          sync.Once
	agreed         chan struct{} // closed by its drain_ok
	silent         atomic.Bool   // a pong is overdue
	silenceChanged chan struct{}
	why            atomic.Pointer[error] // the reason, if this side ends the tunnel
	requests       sync.WaitGroup
	running        atomic.Int64      // requests
	updated        chan link.Updated // the answer to an update
	offers         chan link.Rotate  // the last one, until it is taken
}

func newSession(a *Agent, c *configuration, conn *dial.Conn) *session {
	s := &session{
		agent: a, config: c, conn: conn, pongs: make(chan struct{}, 1),
		silenceChanged: make(chan struct{}, 1), agreed: make(chan struct{}), updated: make(chan link.Updated, 1),
		offers: make(chan link.Rotate, 1),
	}
	s.heartbeat.Store(int64(defaultHeartbeat))
	return s
}

// begin takes the welcome. Any other answer is one to a claim, and closes the
// connection.
func (s *session) begin(answer link.Message) error {
	welcome, ok := answer.(link.Welcome)
	if !ok {
		s.close(link.CloseProtocol, ErrNoWelcome)
		return ErrNoWelcome
	}
	welcome.Session, welcome.Version = text.Short(welcome.Session), text.Short(welcome.Version)
	s.welcome = welcome
	s.setHeartbeat(welcome.HeartbeatMillis)
	return nil
}

// explain replaces an error of a stream by that of the connection, if that has
// ended: it knows why.
func (s *session) explain(err error) error {
	if s.conn.Context().Err() != nil {
		return s.ended()
	}
	return err
}

func (s *session) ended() error {
	if why := s.why.Load(); why != nil {
		return *why
	}
	return context.Cause(s.conn.Context())
}

// serve takes requests until the tunnel ends, and returns why it did. When ctx
// ends, it drains the tunnel first.
func (s *session) serve(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(s.accept)
	background.Go(func() { s.listen() })
	background.Go(s.ping)
	background.Go(s.housekeep)
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

func (s *session) request(stream link.Stream) {
	s.running.Add(1)
	defer s.running.Add(-1)
	err := link.Serve(stream, s.config.proxy)
	var defect *link.PanicError
	switch {
	case errors.As(err, &defect):
		s.agent.Logger.Error("request failed by a defect of the connector", "session", s.welcome.Session, "error", err, "stack", string(defect.Stack))
	case err != nil:
		s.agent.Logger.Debug("request ended early", "session", s.welcome.Session, "error", err)
	}
}

// listen handles the gateway's control messages until the tunnel ends. A pairing ends
// it with a decision: a grant or a denial.
func (s *session) listen() (decision link.Message) {
	draining := false
	for {
		message, err := s.control.Receive()
		if errors.Is(err, link.ErrUnknownMessage) {
			continue // of a newer gateway
		}
		if err != nil {
			s.fail(err)
			return nil
		}
		switch m := message.(type) {
		case link.Ping:
			err = s.send(link.Pong{})
		case link.Pong:
			s.setHeartbeat(m.HeartbeatMillis)
			trySend(s.pongs, struct{}{})
		case link.Drain:
			if !draining {
				s.agent.Logger.Info("gateway is shutting down", "session", s.welcome.Session)
			}
			draining = true
			err = s.send(link.DrainOK{})
		case link.DrainOK:
			s.agree.Do(func() { close(s.agreed) })
		case link.Updated:
			trySend(s.updated, m)
		case link.Rotate:
			s.offer(m)
		case link.Grant, link.Deny:
			if s.config.hello.Claim != "" {
				return message
			}
		}
		if err != nil {
			s.fail(err)
			return nil
		}
	}
}

// trySend sends v, unless a value is waiting in the channel already.
func trySend[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

// housekeep sends the states of the upstreams, now and whenever they change, and takes
// the tokens that the gateway offers. Its rests bound what either can cost.
func (s *session) housekeep() {
	var last link.Report
	for {
		changed := s.agent.prober.Changed()
		if next := s.agent.inUse().proxy.Upstreams().Report(); !reflect.DeepEqual(next, last) {
			if err := s.send(next); err != nil {
				return // which listen and ping notice, too
			}
			last = next
		}
		select {
		case <-s.conn.Context().Done():
			return
		case <-changed:
		case offer := <-s.offers:
			s.rotate(offer)
		}
		select {
		case <-s.conn.Context().Done():
			return
		case <-time.After(housekeepingRest):
		}
	}
}

// send writes one control message; the tunnel is lost if the gateway does not read
// it in time.
func (s *session) send(m link.Message) error {
	if err := s.stream.SetWriteDeadline(time.Now().Add(s.agent.pongTimeout)); err != nil {
		return err
	}
	return s.control.Send(m)
}

// fail ends a tunnel after a failure of its control stream. Mostly the tunnel has
// ended already, and then this changes nothing.
func (s *session) fail(err error) {
	if errors.Is(err, link.ErrMalformed) {
		s.agent.Logger.Error("gateway breaks the protocol", "session", s.welcome.Session, "error", err)
		s.close(link.CloseProtocol, err)
		return
	}
	// The gateway may be about to send why it closes.
	select {
	case <-s.conn.Context().Done():
	case <-time.After(closeTimeout):
		s.close(link.CloseLost, err)
	}
}

// setHeartbeat takes the gateway's interval, within limits.
func (s *session) setHeartbeat(milliseconds int) {
	if milliseconds > 0 {
		s.heartbeat.Store(int64(min(max(time.Duration(milliseconds)*time.Millisecond, minHeartbeat), maxHeartbeat)))
	}
}

// drain leaves the tunnel without breaking a request: the gateway sends no further
// ones, and closes when it has the last answer.
func (s *session) drain() {
	s.agent.Logger.Info("draining", "session", s.welcome.Session, "timeout", s.agent.DrainTimeout.String())
	s.agent.monitor.enter(draining, nil)
	if s.silent.Load() && s.running.Load() == 0 { // there is nothing to wait for
		s.close(link.CloseLost, errNoPong)
		return
	}
	if err := s.depart(); err != nil {
		s.close(link.CloseNone, err)
		return
	}
	select {
	case <-s.conn.Context().Done():
	case <-time.After(s.agent.DrainTimeout):
		s.agent.Logger.Warn("running requests did not finish in time", "session", s.welcome.Session)
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

// close ends the tunnel at once. Its reason counts only if the tunnel has not ended
// before.
func (s *session) close(code link.CloseCode, why error) {
	if s.conn.Context().Err() == nil {
		s.why.CompareAndSwap(nil, &why)
	}
	s.conn.Close(code, "")
}
