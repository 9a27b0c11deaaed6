package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/store"
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
				printRotationProblems(in, connectors)
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
	use: "rotate ID_OR_NAME [--show] [--yes]", operation: "POST /connectors/{id}/rotate",
	long: `Gives a connector a new tunnel token through its open tunnel; running requests are
not interrupted. The old token becomes invalid when the connector has saved the
new one. An offline connector gets the new token when it reconnects.

A connector that cannot write its configuration, or is too old for this, keeps
the old token. --show prints a new one once, to copy it by hand: the old one is
valid until the connector connects with the new one.`,
	example: `  caddy gateway connector rotate workstation
  caddy gateway connector rotate workstation --show`,
	flags: confirmationFlag("Skip the confirmation"),
	prepare: func(in *invocation, _ *request) error {
		return in.confirm(fmt.Sprintf("Give connector %q a new tunnel token?", text.Line(in.arg)))
	},
	print: show(printRotatedConnector),
}

// printRotatedConnector prints the result of a rotation. The command fails if the connector cannot
// save the token.
func printRotatedConnector(in *invocation, r manage.RotatedConnector) {
	show := showCommand(r.ID, in.text("account"))
	switch r.State {
	case manage.Rotated:
		in.printf("Connector %q (%s) has a new tunnel token. The old one is invalid.\n", r.Name, r.ID)
	case manage.RotationFailed:
		in.err = fmt.Errorf("the connector %q cannot write its configuration: %s\n"+
			"The old token stays valid. Copy a new one into it; this command prints one:\n\n  %s", text.Line(r.Name),
			text.Line(r.Problem), show)
	case manage.RotationByHand:
		in.printf(`The new tunnel token of connector %q (%s) is shown only this once:

  %s

Put it into tunnel_token of the connector's configuration, and then run there:

  connector reload

or restart it. The old token is valid until the connector connects with this one.
`, r.Name, r.ID, r.TunnelToken)
	default:
		in.printf(`Connector %q (%s) has not taken its new tunnel token yet: it is offline, or its
version does not support this. It gets the token when it connects; until then the
old one is valid. To copy a token by hand:

  %s
`, r.Name, r.ID, show)
	}
}

// showCommand returns the command that prints a new token of a connector.
func showCommand(id, account string) string {
	command := program.Typed + " gateway connector rotate " + id + " --show"
	if account != "" && account != store.DefaultAccount {
		command += " --account " + account
	}
	return command
}

// tokenState returns the state of a connector's token for a table.
func tokenState(in *invocation, c manage.Connector) string {
	switch {
	case c.Rotation != nil && c.Rotation.ByHand:
		return "rotating by hand since " + in.env.date(c.Rotation.Since)
	case c.Rotation != nil && c.Rotation.Problem != "":
		return "rotating since " + in.env.date(c.Rotation.Since) + ", see below"
	case c.Rotation != nil:
		return "rotating since " + in.env.date(c.Rotation.Since)
	case c.RotatedAt != nil:
		return "rotated " + in.env.ago(c.RotatedAt)
	}
	return ""
}

// printRotationProblems prints the fix for connectors that cannot save their new tokens.
func printRotationProblems(in *invocation, connectors []manage.Connector) {
	for _, c := range connectors {
		if c.Rotation != nil && c.Rotation.Problem != "" {
			in.printf("\nConnector %q cannot write its configuration: %s\nCopy a new token into it: %s\n",
				c.Name, c.Rotation.Problem, showCommand(c.ID, c.Account))
		}
	}
}
