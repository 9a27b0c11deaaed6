package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/text"
)

const (
	// dialLimit bounds an attempt to connect, and then the wait for the answer to the hello. A gateway
	// queues handshakes for up to 8 s.
	dialLimit = 10 * time.Second
	// webSocketDelay is the head start of QUIC in an attempt, unless a WebSocket worked
	// last.
	webSocketDelay = 3 * time.Second
	// busyAttempts is the number of consecutive failures after which a busy gateway is
	// also tried over a WebSocket.
	busyAttempts = 4
)

// purpose is the purpose of a hello: see the package's documentation.
type purpose int

const (
	first purpose = iota
	successor
	newcomer
)

// clearance decides when a hello may be sent.
type clearance struct {
	purpose
	old *session        // the existing tunnel; nil for first
	ctx context.Context // of the handshake, after the wait
}

// wait waits until a hello with configuration c may be sent, or ctx ends. After an error, the hello must
// not be sent: a search that has ended must not change the tunnel.
func (p clearance) wait(ctx context.Context, c *configuration) error {
	if p.purpose == first {
		return nil
	}
	if ctx.Err() != nil && !p.old.departed.Load() {
		return ctx.Err()
	}
	if c != p.old.leg.next().config && c != p.old.leg.inUse() {
		return errNewer
	}
	if p.purpose == newcomer {
		return nil
	}
	if !p.old.departed.Load() {
		p.old.leg.enter(leaving, nil)
	}
	if err := p.old.depart(); err != nil {
		p.old.close(link.CloseNone, err)
		return err
	}
	select {
	case <-p.old.agreed:
	case <-p.old.conn.Context().Done():
		return p.old.ended()
	case <-time.After(p.old.leg.confirmLimit): // the path may lose many packets
	}
	return nil
}

// establish establishes a tunnel with the current configuration or the pending one. It tries
// the pending one first, unless that has failed before.
func (l *leg) establish(ctx context.Context) (s *session, err error) {
	p := l.due()
	if p.config != nil && !l.known.Load() { // the current one has never worked
		l.adopt(p.config)
		p = pending{}
	}
	if p.config == nil {
		return l.connect(ctx, l.inUse())
	}
	order := []*configuration{l.inUse(), p.config}
	if p.pause == 0 {
		slices.Reverse(order)
	}
	for _, c := range order {
		s, failed := l.connect(ctx, c)
		switch {
		case failed == nil && c == p.config:
			l.adopt(c)
			return s, nil
		case failed == nil || ctx.Err() != nil:
			return s, failed
		case c == p.config:
			l.putOff(c, failed)
		}
		if c != p.config || err == nil { // the current one's error decides the next pause
			err = failed
		}
	}
	return nil, err
}

// connect establishes the first tunnel.
func (l *leg) connect(ctx context.Context, c *configuration) (*session, error) {
	target, ok := l.chooseTarget(c)
	if !ok {
		return nil, errNoEdge
	}
	if target.Name == "" {
		l.Logger.Info("connecting", "server", c.quic.Server)
	} else {
		l.Logger.Info("connecting", "server", target.Server, "edge", target.Name)
	}
	return l.race(ctx, c, clearance{ctx: ctx}, l.runners(c, target))
}

// succeed establishes a tunnel that replaces another. The result is nil if the old one stays.
// searching bounds the time until the old one departs, and the context of p the time afterwards.
func (l *leg) succeed(
	searching context.Context, p clearance, c *configuration, runners ...dial.Runner,
) (*handover, error) {
	old := p.old
	if !c.sameConnector(old.config) {
		p.purpose = newcomer
	}
	next, err := l.race(searching, c, p, runners)
	if err != nil && old.departed.Load() {
		return &handover{err: err}, err
	}
	if err != nil {
		return nil, err
	}
	if err := old.depart(); err != nil { // no effect for a successor: the old tunnel has departed
		old.close(link.CloseNone, err)
	}
	return &handover{next: next}, nil
}

// runners returns the transports to a gateway, in the order of preference. A WebSocket leads to
// any edge, as the certificate of HTTPS is for their common name.
func (l *leg) runners(c *configuration, target link.Edge) []dial.Runner {
	quic := dial.Runner{Dial: c.quicTo(target).Dial, Limit: l.dialLimit}
	web := dial.Runner{Dial: c.web.Dial, Limit: l.dialLimit, Delay: l.webDelay}
	switch {
	case c.transport == config.TransportQUIC:
		return []dial.Runner{quic}
	case c.transport == config.TransportWebSocket:
		return []dial.Runner{web}
	default:
		return []dial.Runner{quic, web}
	}
}

// race establishes a tunnel with one of the runners. It sends a hello on the first
// connection, and uses another one only if that fails: a second hello would end the
// tunnel of the first.
func (l *leg) race(ctx context.Context, c *configuration, p clearance, runners []dial.Runner) (s *session, err error) {
	// A busy gateway reserves connections over WebSockets for devices with a pairing code.
	final := l.retry.failures < busyAttempts && c.hello.Claim == ""
	err = dial.Race(ctx, runners, final, func(conn *link.Conn) error {
		s = newSession(l, c, conn)
		return s.handshake(ctx, p)
	})
	if p, ok := errors.AsType[*panics.Error](err); ok {
		p.Log(l.Logger, "establishing a tunnel")
	}
	return s, err
}

// handshake sends the hello as soon as it may be sent, and processes the gateway's
// answer. On an error it closes the connection.
func (s *session) handshake(ctx context.Context, p clearance) (err error) {
	if err = p.wait(ctx, s.config); err != nil {
		s.close(link.CloseNone, err)
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, s.leg.dialLimit)
	defer cancel()
	// Reads of the stream take no context; closing the connection ends them.
	stop := context.AfterFunc(ctx, func() { s.close(link.CloseNone, ErrNoWelcome) })
	defer func() {
		if !stop() && err == nil {
			err = ErrNoWelcome
		}
		if err != nil {
			s.close(link.CloseNone, err)
		}
	}()
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			err = p
		}
	}()
	stream, err := s.conn.OpenStreamSync(ctx)
	if err != nil {
		return s.explain(fmt.Errorf("opening the control stream: %w", err))
	}
	s.control = link.NewControl(boundedStream{stream, writeLimit})
	select { // one hello at a time: the next one names the edge of this tunnel
	case s.leg.hellos <- struct{}{}:
		defer func() { <-s.leg.hellos }()
	case <-ctx.Done():
		return ErrNoWelcome
	}
	hello := s.config.greeting()
	hello.OtherEdges = p.otherEdges(s.leg.Agent)
	if kept := hello.KeptPrompts; kept != nil {
		part := *kept / int64(len(s.leg.allLegs()))
		hello.KeptPrompts = &part
	}
	answer, err := sendHello(link.NewControl(stream), hello) // ctx bounds it
	var deny link.Deny
	if err != nil && !errors.As(err, &deny) {
		err = s.explain(err)
	}
	switch {
	case errors.As(err, &deny) && deny.Code == link.DenyCredentials && s.config.greeting().Secret != hello.Secret:
		return errOutdated
	case errors.As(err, &deny):
		return deny
	case err != nil:
		return err
	}
	return s.begin(answer)
}

// sendHello sends a hello and returns the answer. A refusal is a [link.Deny].
func sendHello(control *link.Control, hello link.Hello) (link.Message, error) {
	if err := control.Send(hello); err != nil {
		return nil, err
	}
	for {
		message, err := control.Receive()
		if errors.Is(err, link.ErrUnknownMessage) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for the gateway's answer: %w", err)
		}
		switch m := message.(type) {
		case link.Welcome, link.Pending, link.Grant:
			return m, nil
		case link.Deny:
			return nil, printable(m)
		}
	}
}

// CheckToken asks the gateway of a configuration, with a hello as a dry run, whether it accepts the token. A
// refusal is a [link.Deny].
func CheckToken(ctx context.Context, c config.Config, number string) error {
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		return fmt.Errorf("tunnel_token: %w", err)
	}
	l := newAgent(Options{}).legs[0]
	dry := &configuration{credentials: &credentials{token: token}, hello: newHello(number, "", c.UpstreamNames())}
	dry.hello.Connector, dry.hello.Routes, dry.hello.DryRun = token.Connector, c.Routes, true
	dry.dialTo(dial.Target{
		Server: cmp.Or(c.Server, token.Server), URL: token.URL, Token: dry.credentials.newest, Logger: l.Logger,
	}, cmp.Or(c.Transport, config.TransportAuto))
	s, err := l.race(ctx, dry, clearance{ctx: ctx}, l.runners(dry, link.Edge{}))
	if err != nil {
		return err
	}
	s.close(link.CloseNone, nil)
	return nil
}

// printable makes a refusal safe to log and to print.
func printable(d link.Deny) link.Deny {
	d.Message, d.Code = text.Short(d.Message), text.Short(d.Code)
	return d
}
