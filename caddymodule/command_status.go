package caddymodule

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// statusCommand builds `caddy gateway status`.
func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Shows the listener, connectors, deployments and counters",
		Example: `  caddy gateway status`,
	}
	takes(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		var status manage.Status
		if done, err := perform(cmd, http.MethodGet, "/status", nil, &status); done || err != nil {
			return err
		}
		printStatus(cmd.OutOrStdout(), status)
		return nil
	})
	return cmd
}

func printStatus(w io.Writer, s manage.Status) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s  %s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	if s.Version != "" {
		row("Postern", "%s, commit %s", s.Version, s.Commit)
	}
	if s.Caddy != "" {
		row("Caddy", "%s", s.Caddy)
	}
	if s.URL != "" {
		row("API", "%s/v1", s.URL)
	}
	row("Listener", "%s (UDP)", s.Listener.Address)
	if s.Listener.Public != "" {
		row("Public", "%s", s.Listener.Public)
	} else {
		row("Public", "not known; set `public` in the model_gateway global options")
	}
	if s.Listener.Pin != "" {
		row("Pin", "%s", s.Listener.Pin)
	}
	row("Connectors", "%d, %d online", s.Connectors.Total, s.Connectors.Online)
	row("Deployments", "%s", deploymentsText(s.Deployments))
	row("Keys", "%d valid, %d revoked", s.Keys.Active, s.Keys.Revoked)
	c := s.Counters
	row("Tunnels", "%d opened, %d replaced, %d denied, %d rejected", c.Connected, c.Replaced, c.Denied, c.Rejected)
	row("Requests", "%d, %d without an answer", c.Requests, c.Failed)
}

// deploymentsText counts deployments: how many can answer, and what the others are.
func deploymentsText(n manage.DeploymentCount) string {
	text := fmt.Sprintf("%d, %d available", n.Total, n.Available)
	if degraded := n.States[health.Degraded]; degraded > 0 {
		text += fmt.Sprintf(" (%d degraded)", degraded)
	}
	for _, state := range health.States {
		if count := n.States[state]; count > 0 && !state.Usable() {
			text += fmt.Sprintf(", %d %s", count, state)
		}
	}
	return text
}

// url is the base of the gateway's HTTP API for a sample request, or a
// placeholder if the gateway cannot tell it.
func (c adminClient) url() string {
	var status manage.Status
	if err := c.call(http.MethodGet, "/status", nil, &status); err != nil || status.URL == "" {
		return "https://YOUR-GATEWAY"
	}
	return status.URL
}
