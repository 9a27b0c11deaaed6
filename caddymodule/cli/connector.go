package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/text"
)

var connectorCommands = command{
	use: "connector", short: "Creates, lists and removes connectors, and rotates their tokens",
	commands: []command{{
		use: "create --name NAME", operation: "POST /connectors",
		long: `Creates a connector and prints the tunnel token that its configuration needs.
The token is not stored and cannot be shown again.`,
		example: `  caddy gateway connector create --name workstation`,
		print:   show(printCreatedConnector),
	}, {
		use: "list", operation: "GET /connectors", example: "  caddy gateway connector list",
		print: list[manage.Connector]{
			columns: "ID, NAME, STATE, TRANSPORT, REMOTE, VERSION, UPSTREAMS, SINCE, TOKEN",
			cells: cells[manage.Connector]{
				"UPSTREAMS": func(_ *invocation, c manage.Connector) string {
					upstreams := make([]string, len(c.Upstreams))
					for i, u := range c.Upstreams {
						upstreams[i] = u.String()
					}
					return strings.Join(upstreams, ", ")
				},
				"SINCE": func(in *invocation, c manage.Connector) string {
					if since := cmp.Or(c.Since, c.LastSeenAt); since != nil {
						return in.env.ago(since)
					}
					return ""
				},
				"TOKEN": tokenState,
			},
			empty: "No connectors yet. Create one with `caddy gateway connector create --name NAME`.",
			notes: func(in *invocation, connectors []manage.Connector) {
				printNotAt(in, connectors)
				printUpdates(in, connectors)
			},
		}.print,
	}, rotateCommand, {
		use: "rename ID_OR_NAME --name NAME", operation: "PATCH /connectors/{id}",
		long:    "Renames a connector. Its tunnel stays, and deployments keep using it.",
		example: `  caddy gateway connector rename workstation --name gpu-box`,
		print: show(func(in *invocation, c manage.Connector) {
			in.printf("Connector %q is called %q now.\n", in.arg, c.Name)
		}),
	}, {
		use: "remove ID_OR_NAME", operation: "DELETE /connectors/{id}",
		long: `Removes a connector and closes its tunnel. Its token is then invalid. A connector
that deployments use cannot be removed.`,
		example: `  caddy gateway connector remove workstation`,
		print: show(func(in *invocation, c manage.Connector) {
			in.printf("Connector %q (%s) is removed.\n", c.Name, c.ID)
		}),
	}},
}

// printNotAt prints which connectors have no tunnel to an edge of the cluster.
func printNotAt(in *invocation, connectors []manage.Connector) {
	for _, c := range connectors {
		for _, n := range c.NotAt {
			in.printf("\n%s is not at %s: %s (since %s)\n", c.Name, n.Edge, n.Reason, in.env.ago(&n.Since))
		}
	}
}

// printUpdates prints the connectors that are older than the gateway, and the lines that replace them.
func printUpdates(in *invocation, connectors []manage.Connector) {
	names, version := make(map[string][]string), "" // by line
	for _, c := range connectors {
		if c.NewerVersion != "" {
			names[c.Update], version = append(names[c.Update], c.Name), c.NewerVersion
		}
	}
	for _, line := range slices.Sorted(maps.Keys(names)) {
		in.printf("\nOlder than the gateway (%s): %s\n", version, strings.Join(names[line], ", "))
		if line == "" {
			in.printf("This gateway has no connector for that system. Replace the program as you installed it.\n")
			continue
		}
		in.printf(`Run the install line again there, as the user who installed it. It replaces the program, keeps the
configuration and the service, and restarts it; running answers have 30 seconds.

  %s
`, line)
	}
}

func printCreatedConnector(in *invocation, c manage.CreatedConnector) {
	in.printf(`Connector %q (%s) created. Its tunnel token is shown only this once.

On the machine of the model server, save this as connector.json; "upstream" is
where the model server listens:

{
  "tunnel_token": "%s",
  "upstream": "http://localhost:11434"
}

and start the connector there:

  connector run --config connector.json

Then give a model of that server a public name, here:

  caddy gateway deployment set MODEL --connector %s
`, c.Name, c.ID, c.TunnelToken, c.ID)
}

var rotateCommand = command{
	use: "rotate ID_OR_NAME [--grace DURATION] [--yes]", operation: "POST /connectors/{id}/rotate",
	long: `Creates a new tunnel token for a connector and prints it. The current token ends at
once, and with it its tunnel and the requests in it; with --grace, both are valid
for that time. At most two tokens are valid: one that is still valid from an earlier
rotation ends at once.`,
	example: `  caddy gateway connector rotate workstation
  caddy gateway connector rotate workstation --grace 24h`,
	flags: confirmationFlag("Skip the confirmation, which is not needed with --grace"),
	prepare: func(in *invocation, _ *request) error {
		if in.Flags().Changed("grace") {
			return nil
		}
		return in.confirm(fmt.Sprintf("End the tunnel token of connector %q now? The connector is offline until it has the "+
			"new one.", text.Line(in.arg)))
	},
	print: show(printRotatedConnector),
}

func printRotatedConnector(in *invocation, c manage.CreatedConnector) {
	in.printf(`Connector %q (%s) has a new tunnel token. It is shown only this once:

  %s

On its machine, put the token into tunnel_token of the connector's configuration. Then
run there:

  connector reload

Or pair the machine again, and approve that here:

  caddy gateway pairing approve CODE --replace %s

`, c.Name, c.ID, c.TunnelToken, c.ID)
	if c.PreviousUntil != nil && c.PreviousUntil.After(in.env.now()) {
		in.printf("The old token is valid until %s.\n", in.env.date(*c.PreviousUntil))
	} else {
		in.printf("The old token is invalid.\n")
	}
	if c.Unconfirmed != nil {
		in.warnf("Warning: %s\n", c.Unconfirmed.Message)
	}
}

// tokenState returns when a connector's token was rotated, for a table.
func tokenState(in *invocation, c manage.Connector) string {
	switch {
	case c.RotatedAt == nil:
		return ""
	case c.PreviousUntil != nil && c.PreviousUntil.After(in.env.now()):
		return "rotated " + in.env.ago(c.RotatedAt) + ", the old one ends " + in.env.date(*c.PreviousUntil)
	}
	return "rotated " + in.env.ago(c.RotatedAt)
}
