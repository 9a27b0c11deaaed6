package doctor

import (
	"context"
	"errors"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// dialAny connects to the gateway on the way that has been found to work.
func (d *diagnosis) dialAny(ctx context.Context) (*dial.Conn, error) {
	if d.udp {
		return dial.NewQUIC(d.target).Dial(ctx, nil)
	}
	return dial.NewWebSocket(d.target).Dial(ctx, nil)
}

// askToken asks the gateway whether it would let the connector in, by a hello that
// takes no tunnel's place.
func (d *diagnosis) askToken(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	err := d.dryRun(ctx)
	var deny link.Deny
	switch {
	case err == nil:
		return Finding{Result: ResultOK, Detail: "the gateway accepts the tunnel token"}
	case agent.Refused(err):
		reason, fix := agent.Explain(err)
		return Finding{Result: ResultFailed, Detail: reason, Fix: fix}
	case errors.Is(err, link.ErrPin):
		return Finding{Result: ResultSkipped, Detail: "who answers is not the gateway that the token was made for"}
	case errors.As(err, &deny):
		return Finding{Result: ResultWarning, Detail: "the gateway does not know now: " + explain(err), Fix: "try again in a moment"}
	case ctx.Err() != nil:
		err = agent.ErrNoWelcome
	}
	return Finding{Result: ResultSkipped, Detail: "the gateway could not be asked: " + explain(err)}
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
	hello := link.Hello{Connector: d.token.Connector, Secret: d.token.Secret, DryRun: true, Upstreams: d.config.UpstreamNames(), Routes: d.config.Routes}
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

// explain returns why an attempt to connect failed.
func explain(err error) string {
	reason, _ := agent.Explain(err)
	return reason
}
