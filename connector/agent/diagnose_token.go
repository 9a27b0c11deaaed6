package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/postern-dev/postern/connector/link"
)

// dialAny connects to the gateway on the way that has been found to work.
func (d *diagnosis) dialAny(ctx context.Context) (link.Conn, error) {
	if d.udp {
		return newDialer(d.server, d.token.Pin, link.Preauth(d.token)).dial(ctx)
	}
	return newWebDialer(d.token.URL, d.server, d.token.Pin, link.Preauth(d.token), slog.New(slog.DiscardHandler)).dial(ctx)
}

// askToken asks the gateway whether it would let the connector in, by a hello that
// takes no tunnel's place.
func (d *diagnosis) askToken(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	err := d.dryRun(ctx)
	switch kindOf(err) {
	case endRefused:
		return Finding{Result: ResultFailed, Detail: reason(err), Fix: fixFor(err)}
	case endWrongPin:
		return Finding{Result: ResultSkipped, Detail: "who answers is not the gateway that the token was made for"}
	}
	var deny link.Deny
	switch {
	case err == nil:
		return Finding{Result: ResultOK, Detail: "the gateway accepts the tunnel token"}
	case errors.As(err, &deny):
		return Finding{Result: ResultWarning, Detail: "the gateway cannot tell now: " + reason(err), Fix: "try again in a moment"}
	case ctx.Err() != nil:
		err = errNoWelcome
	}
	return Finding{Result: ResultSkipped, Detail: "the gateway could not be asked: " + reason(err)}
}

// dryRun says hello without taking a tunnel, and returns what the gateway has
// against it.
func (d *diagnosis) dryRun(ctx context.Context) error {
	conn, err := d.dialAny(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(link.CloseNone, "")
	defer context.AfterFunc(ctx, func() { conn.Close(link.CloseNone, "") })()
	stream, err := conn.Control(ctx)
	if err != nil {
		return err
	}
	control := link.NewControl(stream)
	hello := link.Hello{Connector: d.token.Connector, Secret: d.token.Secret, DryRun: true, Upstreams: d.config.upstreamNames(), Routes: d.config.Routes}
	if err := control.Send(hello); err != nil {
		return err
	}
	for {
		message, err := control.Receive()
		if errors.Is(err, link.ErrUnknownMessage) {
			continue
		}
		if err != nil {
			if conn.Context().Err() != nil {
				err = context.Cause(conn.Context()) // knows why
			}
			return err
		}
		switch m := message.(type) {
		case link.Welcome:
			return nil
		case link.Deny:
			return m
		}
	}
}
