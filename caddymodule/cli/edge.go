package cli

import (
	"net/http"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var edgeCommands = command{
	use: "edge", short: "Lists, drains and removes the edges of a cluster",
	long: `Lists, drains and removes the edges of a cluster, the gateways that share a store
in etcd. A gateway with a store of its own has none.`,
	commands: []command{
		list[manage.Edge]{
			kind: "edge", short: "Lists the edges of the cluster", all: true,
			header: []string{"NAME", "STATE", "REGION", "VERSION", "ADVERTISE", "PEER", "STARTED", "ROLE"},
			row: func(in *invocation, e manage.Edge) []string {
				state := e.State
				if e.LostSince != nil {
					state += " " + in.env.ago(e.LostSince)
				}
				var roles []string
				if e.Leader {
					roles = append(roles, "leader")
				}
				if e.Self {
					roles = append(roles, "this edge")
				}
				return []string{e.Name, state, e.Region, e.Version, e.Advertise, e.Peer, in.env.ago(&e.StartedAt), strings.Join(roles, ", ")}
			},
		}.command(),
		{
			use: "drain NAME", short: "Makes an edge not ready, so that balancers use the others",
			long: `Makes an edge not ready: /.well-known/postern/ready answers 503, and load balancers
that check it use the other edges. Connectors leave as soon as they have a tunnel to
another edge. The edge goes on serving what reaches it. It drains until
"edge undrain", or until its program is started again.`,
			example: `  caddy gateway edge drain edge-a`,
			run: operation(send(http.MethodPost, "/edges/{}/drain"), func(in *invocation, e manage.Edge) {
				in.printf("The edge %s drains. It still serves what reaches it.\n", printable(e.Name))
			}),
		},
		{
			use: "undrain NAME", short: "Makes a draining edge ready again",
			example: `  caddy gateway edge undrain edge-a`,
			run: operation(send(http.MethodPost, "/edges/{}/undrain"), func(in *invocation, e manage.Edge) {
				in.printf("The edge %s is ready again.\n", printable(e.Name))
			}),
		},
		{
			use: "remove NAME", short: "Removes a lost edge that does not come back",
			long: `Removes a lost edge that does not come back, as soon as it certainly refuses all
requests. Edges that stop leave the cluster by themselves, and edges that are lost
for an hour are removed without this command.`,
			example: `  caddy gateway edge remove edge-b`,
			run: operation(send(http.MethodDelete, "/edges/{}"), func(in *invocation, e manage.Edge) {
				in.printf("The edge %s is removed.\n", printable(e.Name))
			}),
		},
	},
}
