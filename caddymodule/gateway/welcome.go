package gateway

import (
	"context"
	"fmt"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// welcome prints how to get into a console that has no user yet: once in a
// process, however often it is reloaded. The link goes to a terminal only: others
// read a journal, and the log of a container.
func (g *Gateway) welcome(ctx context.Context, s *Services) {
	if !g.Console || s.Store.UserCount() > 0 || g.Store.Welcomed.Swap(true) {
		return
	}
	if !g.Store.Terminal {
		fmt.Fprintf(g.Store.Messages, "The console has no users yet. `%s gateway setup-link` prints a link that creates the first.\n", g.Program)
		return
	}
	service, err := g.Manage()
	if err != nil {
		g.Logger.Warn("failed to create the setup link", "error", err)
		return
	}
	link, err := service.SetupLink(manage.WithCaller(ctx, manage.Caller{Name: "gateway start", Operator: true}))
	if err != nil {
		g.Logger.Warn("failed to create the setup link", "error", err)
		return
	}
	fmt.Fprintf(g.Store.Messages, `
The console has no users yet. Open this link within 15 minutes to become the first:

  %s

It works once; `+"`%s gateway setup-link`"+` prints another one.

`, link.URL, g.Program)
}
