package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
)

var statusCommand = command{
	use: "status", operation: "GET /status",
	example: `  caddy gateway status`,
	print:   show(printStatus),
}

func printStatus(in *invocation, s manage.Status) {
	row := func(name, format string, args ...any) {
		in.printf("%-12s  %s\n", name, fmt.Sprintf(format, args...))
	}
	known := func(name, value, more string) {
		if value != "" {
			row(name, "%s", value+more)
		}
	}
	known("Postern", s.Version, ", commit "+s.Commit)
	known("Caddy", s.Caddy, "")
	known("API", s.URL, "/v1")
	row("Listener", "%s (UDP)", s.Listener.Address)
	row("Public", "%s", cmp.Or(s.Listener.Public, "not known; set `public` in the model_gateway global options"))
	known("Pin", s.Listener.Pin, "")
	row("Connectors", "%d, %d online", s.Connectors.Total, s.Connectors.Online)
	row("Deployments", "%s", deploymentsText(s.Deployments))
	row("Keys", "%d active, %d revoked", s.Keys.Active, s.Keys.Revoked)
	if len(s.Edges) > 0 {
		self, cluster := in.env.edgesText(s.Edges)
		row("Edge", "%s", self)
		row("Cluster", "%s", cluster)
	}
	c := s.Counters
	row("Tunnels", "%d opened, %d replaced, %d denied, %d rejected", c.Connected, c.Replaced, c.Denied, c.Rejected)
	row("Requests", "%d since the gateway started, %d without an answer%s", c.Requests, c.Failed,
		map[bool]string{true: program.Named("; `caddy gateway activity --failed` lists them")}[c.Failed > 0])
	for _, warning := range s.Warnings {
		in.warnf("\nWarning: %s.\n", warning)
	}
	if address, err := in.admin(); err == nil && up.Exposed(address) {
		in.warnf("\nWarning: the admin endpoint is at %s, where every local process can manage the gateway. "+
			"Put it on a Unix socket: `admin \"unix/%s|0600\"` in the Caddyfile's global options.\n", address,
			filepath.Join(s.DataDir, "admin.sock"))
	}
}

// edgesText describes the edge that answers, and its cluster.
func (e environment) edgesText(edges []manage.Edge) (self, cluster string) {
	leader, others := "not known", ""
	for _, edge := range edges {
		if edge.Leader {
			leader = edge.Name
		}
		text := edge.Name + ", " + e.edgeState(edge)
		switch {
		case edge.Self:
			self = strings.TrimSuffix(text+": "+edge.Problem, ": ")
		case edge.State != manage.EdgeServing:
			others += "; " + text
		}
	}
	return self, fmt.Sprintf("%d edges, leader %s%s", len(edges), leader, others)
}

// deploymentsText counts the available deployments, and the others by state.
func deploymentsText(n manage.DeploymentCount) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d, %d available", n.Total, n.Available)
	if degraded := n.States[health.Degraded]; degraded > 0 {
		fmt.Fprintf(&text, " (%d degraded)", degraded)
	}
	for _, state := range health.States {
		if count := n.States[state]; count > 0 && !state.Usable() {
			fmt.Fprintf(&text, ", %d %s", count, state)
		}
	}
	return text.String()
}
