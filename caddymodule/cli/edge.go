package cli

import (
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

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
				var roles []string
				if e.Leader {
					roles = append(roles, "leader")
				}
				if e.Self {
					roles = append(roles, "this edge")
				}
				return []string{
					e.Name, in.env.edgeState(e), e.Region, e.Version, e.Advertise, e.Peer,
					in.env.ago(&e.StartedAt), strings.Join(roles, ", "),
				}
			},
			notes: func(in *invocation, edges []manage.Edge) {
				for _, e := range edges {
					if e.Self && e.ContactAt != nil {
						in.printf("\nThis edge last had contact to the store %s: "+
							"what the list says of the others is from then.\n", in.env.ago(e.ContactAt))
					}
				}
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
			use: "remove NAME", short: "Removes an edge that does not come back",
			long: `Removes an edge that does not come back, as soon as it certainly accepts no
requests. With --stopped it is removed at once: say that only if its program has
certainly stopped. If it runs, it can accept a revoked key although the revocation
was confirmed. Edges that stop leave the cluster by themselves, and edges that are
lost for an hour are removed without this command.`,
			example: `  caddy gateway edge remove edge-b
  caddy gateway edge remove edge-b --stopped`,
			flags: func(f *pflag.FlagSet) { f.Bool("stopped", false, "Its program has certainly stopped") },
			run: operation(func(in *invocation) (request, error) {
				r := in.request(http.MethodDelete, "/edges/{}")
				if in.is("stopped") {
					r = r.with("stopped", "true")
				}
				return r, nil
			}, func(in *invocation, e manage.Edge) {
				in.printf("The edge %s is removed.\n", printable(e.Name))
			}),
		},
	},
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
