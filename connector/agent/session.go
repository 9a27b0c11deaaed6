package agent

import (
	"context"
	"errors"
	"math"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/bodies"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// confirmLimit is how long a tunnel without requests waits for the gateway to confirm its drain.
	confirmLimit = 3 * time.Second
	// closeTimeout bounds the wait for the gateway's reason for closing.
	closeTimeout = 2 * time.Second
	// reportPause is the shortest time between two reports.
	reportPause = time.Second
)

// session is one tunnel.
type session struct {
	leg     *leg
	conn    *link.Conn
	control *link.Control
	answer  link.Message // to the hello
	welcome link.Welcome // answer, if it is a welcome

	heartbeat atomic.Int64 // time.Duration between pings
	lost      *time.Timer  // ends the tunnel, unless a pong comes in time
	drainSent atomic.Bool
	confirm   sync.Once
	confirmed chan struct{}         // closed on drain_ok
	cause     atomic.Pointer[error] // set if this side ends the tunnel
	requests  sync.WaitGroup
	running   atomic.Int64   // number of requests
	bodies    *bodies.Tunnel // of the requests
}

func newSession(l *leg, conn *link.Conn) *session {
	s := &session{
		leg: l, conn: conn,
		confirmed: make(chan struct{}), bodies: l.bodies.NewTunnel(math.MaxInt64),
	}
	s.heartbeat.Store(int64(defaultHeartbeat))
	return s
}

// begin processes the answer to the hello: a welcome or, in a pairing, pending or grant.
func (s *session) begin(answer link.Message) error {
	welcome, welcomed := answer.(link.Welcome)
	if pairing := s.leg.config.hello.Claim != ""; pairing == welcomed {
		s.close(link.CloseProtocol, ErrNoWelcome)
		return ErrNoWelcome
	}
	s.answer = answer
	welcome.Session, welcome.Version = text.Short(welcome.Session), text.Short(welcome.Version)
	welcome.Edges = s.checkEdges(welcome.Edges)
	s.welcome = welcome
	if welcome.Edge != "" {
		s.track()
	}
	s.setHeartbeat(welcome.HeartbeatMillis)
	return nil
}

// explain returns the error of the connection if it has ended, as it is more specific
// than that of a stream.
func (s *session) explain(err error) error {
	if s.conn.Context().Err() != nil {
		return s.ended()
	}
	if deny, ok := link.Denied(err); ok { // streams end before the connection does
		return printable(deny)
	}
	return err
}

// ended returns why the tunnel has ended.
func (s *session) ended() error {
	if cause := s.cause.Load(); cause != nil {
		return *cause
	}
	cause := context.Cause(s.conn.Context())
	if deny, ok := link.Denied(cause); ok { // the message was lost, but not the code
		return printable(deny)
	}
	return cause
}

// serve serves requests until the tunnel ends, and returns the reason. When ctx ends, it
// drains the tunnel.
func (s *session) serve(ctx context.Context) error {
	var background sync.WaitGroup
	work := func(doing string, f func()) { background.Go(func() { s.work(doing, f) }) }
	work("accepting requests", s.accept)
	work("reading from the gateway", func() { s.listen() })
	work("sending pings", s.ping)
	work("reporting to the gateway", s.sendReports)
	select {
	case <-s.conn.Context().Done():
	case <-ctx.Done():
		s.drain()
	}
	// The end of the tunnel ends all streams, and so the contexts of the requests.
	background.Wait()
	s.requests.Wait()
	s.bodies.Close()
	return s.ended()
}

// work calls f. A panic ends the tunnel.
func (s *session) work(doing string, f func()) {
	if err := panics.Do(s.leg.Logger, doing, func() error { f(); return nil }); err != nil {
		s.close(link.CloseLost, err)
	}
}

// accept starts requests. It must be fast, as the queue of new streams is short.
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
	err := link.Serve(stream, s)
	defect, panicked := errors.AsType[*panics.Error](err)
	switch {
	case panicked:
		defect.Log(s.leg.Logger, "serving a request")
	case err != nil:
		s.leg.Logger.Debug("request ended early", "session", s.welcome.Session, "error", err)
	}
}

// ServeHTTP decodes the body of a request and passes the request to the proxy.
func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	encoded := r.Body
	if err := bodies.Decode(r, s.bodies); err != nil {
		failed, _ := errors.AsType[*link.Failure](err)
		w.(interface{ Abort(*link.Failure) }).Abort(failed)
		return
	}
	if r.Body != encoded {
		defer r.Body.Close()
	}
	s.leg.config.proxy.ServeHTTP(w, r)
}

// listen handles the gateway's control messages until the tunnel ends. In a pairing it
// returns the decision: a grant or a denial.
func (s *session) listen() (decision link.Message) {
	draining := false
	for {
		message, err := s.control.Receive()
		if errors.Is(err, link.ErrUnknownMessage) {
			continue // from a newer gateway
		}
		if err != nil {
			s.fail(err)
			return nil
		}
		switch m := message.(type) {
		case link.Ping:
			err = s.control.Send(link.Pong{})
		case link.Pong:
			s.setHeartbeat(m.HeartbeatMillis)
			s.lost.Reset(s.leg.lostAfter)
		case link.Drain:
			if !draining {
				s.leg.Logger.Info("gateway is shutting down", "session", s.welcome.Session)
			}
			draining = true
			err = s.control.Send(link.DrainOK{})
		case link.DrainOK:
			s.confirm.Do(func() { close(s.confirmed) })
		case link.Edges:
			s.onEdges(m)
		case link.Recheck:
			if u := s.leg.config.proxy.Upstreams()[m.Upstream]; u != nil {
				s.leg.prober.Recheck(u)
			}
		case link.Grant, link.Deny:
			if s.leg.config.hello.Claim != "" {
				return message
			}
		}
		if err != nil {
			s.fail(err)
			return nil
		}
	}
}

// sendReports reports the states of the upstreams and the other tunnels, now and on each change. The pauses bound its
// cost.
func (s *session) sendReports() {
	var last link.Report
	for {
		changed := s.leg.prober.Changed()
		next := s.leg.config.proxy.Upstreams().Report()
		next.NotAt = s.leg.notAt()
		if !reflect.DeepEqual(next.Upstreams, last.Upstreams) || !slices.EqualFunc(next.NotAt, last.NotAt, sameReason) {
			if err := s.control.Send(next); err != nil {
				s.fail(err)
				return
			}
			last = next
		}
		select {
		case <-s.conn.Context().Done():
			return
		case <-changed:
		case <-time.After(s.leg.notAtAfter):
		}
		if wait.For(s.conn.Context(), reportPause) != nil {
			return
		}
	}
}

// fail ends a tunnel after its control stream failed. It has no effect if the tunnel has
// already ended.
func (s *session) fail(err error) {
	if errors.Is(err, link.ErrMalformed) {
		s.leg.Logger.Error("the gateway violated the protocol", "session", s.welcome.Session, "error", err)
		s.close(link.CloseProtocol, err)
		return
	}
	// The gateway may be about to send its reason for closing.
	if wait.For(s.conn.Context(), closeTimeout) == nil {
		s.close(link.CloseLost, err)
	}
}

// drain ends the tunnel without breaking a request: the gateway sends no further requests,
// and closes the tunnel after the last answer.
func (s *session) drain() {
	s.leg.Logger.Info("draining", "session", s.welcome.Session, "timeout", s.leg.DrainTimeout.String())
	s.leg.enter(StateDraining, nil)
	if err := s.sendDrain(); err != nil {
		s.close(link.CloseNone, err)
		return
	}
	defer time.AfterFunc(s.leg.confirmLimit, func() {
		if !isClosed(s.confirmed) && s.running.Load() == 0 { // nothing to wait for
			s.close(link.CloseLost, errNotConfirmed)
		}
	}).Stop()
	busy := func() bool { return s.running.Load() > 0 }
	if !endsInTime(s.conn.Context(), s.leg.process, s.leg.DrainTimeout, busy) {
		s.leg.Logger.Warn("running requests did not finish in time", "session", s.welcome.Session)
		s.close(link.CloseNone, errDrainTimeout)
	}
}

// endsInTime waits for the end of a tunnel that drains, and reports whether it is in time. For running requests, the
// limit begins with the end of the process: a reload cuts no answer.
func endsInTime(tunnel, process context.Context, limit time.Duration, busy func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	stopping, stopped := process.Done(), false
	for {
		select {
		case <-tunnel.Done():
			return true
		case <-stopping:
			stopping, stopped = nil, true
		case <-timer.C:
			if stopped || !busy() {
				return false
			}
		}
		timer.Reset(limit)
	}
}

// sendDrain sends a drain, once.
func (s *session) sendDrain() error {
	if s.drainSent.Swap(true) {
		return nil
	}
	return s.control.Send(link.Drain{})
}

// leave drains a tunnel that has a successor: the gateway closes it.
func (s *session) leave() {
	if err := s.sendDrain(); err != nil {
		s.close(link.CloseNone, err)
	}
}

// close ends the tunnel at once. The cause is ignored if the tunnel has already ended.
func (s *session) close(code link.CloseCode, cause error) {
	if s.conn.Context().Err() == nil {
		s.cause.CompareAndSwap(nil, &cause)
	}
	s.conn.Close(code, "")
}
