package doctor

import (
	"context"
	"errors"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// askToken checks whether the gateway would accept the connector, with a hello that does
// not replace its tunnel.
func (d *diagnosis) askToken(ctx context.Context) Finding {
	if !d.answersUDP() && !d.web {
		return skipped("the gateway cannot be reached")
	}
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	err := d.dryRun(ctx)
	var deny link.Deny
	switch {
	case err == nil:
		return ok("the gateway accepts the tunnel token")
	case agent.Refused(err):
		reason, fix := agent.Explain(err)
		return bad(fix, "%s", reason)
	case errors.Is(err, link.ErrPin):
		return skipped("this server is not the gateway that created the token")
	case errors.As(err, &deny):
		return warned("try again in a moment", "the gateway cannot check the token now: %s", explain(err))
	case ctx.Err() != nil:
		err = agent.ErrNoWelcome
	}
	return skipped("failed to ask the gateway: " + explain(err))
}

// dryRun sends the hello over a working transport.
func (d *diagnosis) dryRun(ctx context.Context) error {
	open := dial.NewWebSocket(d.target).Dial
	if d.answersUDP() {
		open = dial.NewQUIC(d.target).Dial
	}
	conn, err := open(ctx, nil)
	if err != nil {
		return err
	}
	return agent.DryRun(ctx, conn, link.Hello{
		Connector: d.token.Connector, Secret: d.token.Secret, DryRun: true, Upstreams: d.config.UpstreamNames(), Routes: d.config.Routes,
	})
}

func explain(err error) string {
	reason, _ := agent.Explain(err)
	return reason
}
