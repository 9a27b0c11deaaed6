package cli

import (
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var edgeCommands = command{
	use: "edge", short: "Lists, drains and removes the edges of a cluster",
	long: `Lists, drains and removes the edges of a cluster, the gateways that share a store
in etcd. A single gateway, whose store is a file, has no edges.`,
	commands: []command{{
		use: "list", operation: "GET /edges", example: "  caddy gateway edge list",
		print: list[manage.Edge]{
			columns: "NAME, STATE, VERSION, ADVERTISE, STARTED, ROLE",
			cells: cells[manage.Edge]{
				"STATE": func(in *invocation, e manage.Edge) string { return in.env.edgeState(e) },
				"ROLE": func(_ *invocation, e manage.Edge) string {
					var roles []string
					if e.Leader {
						roles = append(roles, "leader")
					}
					if e.Self {
						roles = append(roles, "this edge")
					}
					return strings.Join(roles, ", ")
				},
			},
			empty: "No edges.",
			notes: func(in *invocation, edges []manage.Edge) {
				for _, e := range edges {
					if e.Self && e.ContactAt != nil {
						in.printf("\nThis edge last reached the store %s. The list shows the other edges as they were then.\n",
							in.env.ago(e.ContactAt))
					}
					if e.Problem != "" {
						in.printf("\nThe last error of this edge: %s.\n", e.Problem)
					}
				}
			},
		}.print,
	}, {
		use: "drain NAME", operation: "POST /edges/{name}/drain",
		long: `Makes an edge not ready: /.well-known/postern/ready answers 503, and load balancers
that check it use the other edges. The tunnels of connectors stay, and those that end
are not dialed again. The edge still serves the requests that reach it. It drains until
"edge undrain", or until its program is started again.`,
		example: `  caddy gateway edge drain edge-a`,
		print: show(func(in *invocation, e manage.Edge) {
			in.printf("The edge %s drains. It still serves the requests that reach it.\n", e.Name)
		}),
	}, {
		use: "undrain NAME", operation: "POST /edges/{name}/undrain",
		example: `  caddy gateway edge undrain edge-a`,
		print: show(func(in *invocation, e manage.Edge) {
			in.printf("The edge %s is ready again.\n", e.Name)
		}),
	}, {
		use: "remove NAME", operation: "DELETE /edges/{name}",
		long: `Removes an edge that does not come back, as soon as it certainly accepts no
requests. With --stopped it is removed at once. Use that only if its program has
certainly stopped: an edge that still runs can accept a revoked key although the
revocation was confirmed. Edges that stop leave the cluster by themselves, and edges
that are lost for an hour are removed without this command.`,
		example: `  caddy gateway edge remove edge-b
  caddy gateway edge remove edge-b --stopped`,
		print: show(func(in *invocation, e manage.Edge) {
			in.printf("The edge %s is removed.\n", e.Name)
		}),
	}},
}

// edgeState describes the state of an edge.
func (e environment) edgeState(edge manage.Edge) string {
	text := edge.StateText()
	switch {
	case edge.ServesUntil != nil:
		text += " until " + edge.ServesUntil.In(e.zone).Format(time.TimeOnly)
	case edge.ContactAt != nil:
		text += " " + e.ago(edge.ContactAt)
	}
	return text
}
