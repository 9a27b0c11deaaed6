package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// connect establishes the first tunnel.
func (l *leg) connect(ctx context.Context) (*session, error) {
	target := l.target()
	if target.Name == "" {
		l.Logger.Info("connecting", "server", l.config.quic.Server)
	} else {
		l.Logger.Info("connecting", "server", target.Server, "edge", target.Name)
	}
	return l.race(ctx, ctx, nil, l.runners(target))
}

// runners returns the transports to a gateway, in the order of preference. A WebSocket leads to
// any edge, as the certificate of HTTPS is for their common name.
func (l *leg) runners(target link.Edge) []dial.Runner {
	c := l.config
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
// tunnel of the first. Before a hello is sent, the end of searching stops the race; after it, only the end of
// ctx does. At its edge, the hello may replace one tunnel; nil means none.
func (l *leg) race(searching, ctx context.Context, replaces *session, runners []dial.Runner) (s *session, err error) {
	// A busy gateway reserves connections over WebSockets for devices with a pairing code.
	final := l.retry.failures < busyAttempts && l.config.hello.Claim == ""
	err = dial.Race(searching, runners, final, func(conn *link.Conn) error {
		s = newSession(l, conn)
		if err := searching.Err(); err != nil {
			s.close(link.CloseNone, err)
			return err
		}
		err := s.handshake(ctx, replaces)
		if kindOf(err) == endEdgeInUse && len(runners) > 1 {
			return errors.New(Reason(err)) // the other transport may lead to the leg's edge
		}
		return err
	})
	if p, ok := errors.AsType[*panics.Error](err); ok {
		p.Log(l.Logger, "establishing a tunnel")
	}
	return s, err
}

// handshake sends the hello and processes the gateway's answer. On an error it closes the connection.
func (s *session) handshake(ctx context.Context, replaces *session) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.leg.dialLimit)
	defer cancel()
	// Reads of the stream take no context; closing the connection ends them.
	stop := context.AfterFunc(ctx, func() { s.close(link.CloseNone, ErrNoWelcome) })
	defer func() {
		if !stop() && !errors.As(err, new(link.Deny)) {
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
	s.control = link.NewControl(stream)
	select { // one hello at a time: the next one names the edge of this tunnel
	case s.leg.hellos <- struct{}{}:
		defer func() { <-s.leg.hellos }()
	case <-ctx.Done():
		return ErrNoWelcome
	}
	hello := s.leg.config.hello
	hello.OtherEdges = s.leg.otherEdges(replaces)
	if kept := hello.KeptPrompts; kept != nil {
		part := *kept / int64(len(s.leg.allLegs()))
		hello.KeptPrompts = &part
	}
	answer, err := sendHello(s.control, hello)
	if err != nil && !errors.As(err, new(link.Deny)) {
		err = s.explain(err)
	}
	if err != nil {
		return err
	}
	s.lost = time.AfterFunc(s.leg.lostAfter, func() { s.close(link.CloseLost, errNoPong) })
	context.AfterFunc(s.conn.Context(), func() { s.lost.Stop() })
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
// refusal is a [link.Deny]. It returns the edges of a cluster.
func CheckToken(ctx context.Context, c config.Config) ([]link.Edge, error) {
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		return nil, fmt.Errorf("tunnel_token: %w", err)
	}
	a := newAgent(Options{})
	dry := &configuration{token: token, hello: newHello("", c.UpstreamNames())}
	dry.hello.Connector, dry.hello.Secret = token.Connector, token.Secret
	dry.hello.Routes, dry.hello.DryRun = c.Routes, true
	dry.dialTo(dial.Target{
		Server: cmp.Or(c.Server, token.Server), URL: token.URL, Token: dry.tunnelToken, Logger: a.Logger,
	}, cmp.Or(c.Transport, config.TransportAuto))
	l := a.newInstance(dry).legs[0]
	s, err := l.race(ctx, ctx, nil, l.runners(link.Edge{}))
	if err != nil {
		return nil, err
	}
	s.close(link.CloseNone, nil)
	return s.welcome.List, nil
}

// printable makes a refusal safe to log and to print.
func printable(d link.Deny) link.Deny {
	d.Message, d.Code = text.Short(d.Message), text.Short(d.Code)
	return d
}
