package cli

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var connectorCommands = command{
	use: "connector", short: "Creates, lists and removes connectors, and gives them new tokens",
	commands: []command{{
		use: "create --name NAME", short: "Creates a connector and prints its tunnel token, this once",
		long: `Creates a connector and prints the tunnel token that its configuration needs.
The token is not stored and cannot be shown again.`,
		example: `  caddy gateway connector create --name workstation`,
		account: true,
		flags:   func(f *pflag.FlagSet) { f.String("name", "", "A name of your choice for the machine (required)") },
		run: operation(func(in *invocation) (request, error) {
			_, err := in.needs("name", "caddy gateway connector create --name workstation")
			return request{http.MethodPost, "/connectors", in.flagFields("name")}, err
		}, printCreatedConnector),
	}, list[manage.Connector]{
		kind: "connector", short: "Lists connectors and their live state",
		empty:  "Create one with `caddy gateway connector create --name NAME`.",
		header: []string{"ID", "NAME", "STATE", "TRANSPORT", "REMOTE", "VERSION", "UPSTREAMS", "SINCE", "TOKEN"},
		row: func(in *invocation, c manage.Connector) []string {
			since, upstreams := "", make([]string, len(c.Upstreams))
			if at := cmp.Or(c.Since, c.LastSeenAt); at != nil {
				since = in.env.ago(at)
			}
			for i, u := range c.Upstreams {
				upstreams[i] = u.String()
			}
			return []string{c.ID, c.Name, c.State, c.Transport, c.Remote, c.Version, strings.Join(upstreams, ", "), since, in.env.tokenState(c)}
		},
		notes: printRotationProblems,
	}.command(), rotateCommand, {
		use: "remove ID_OR_NAME", short: "Removes a connector",
		long: `Removes a connector and closes its tunnel. Its token is invalid afterwards.
It is refused while deployments lead to the connector.`,
		example: `  caddy gateway connector remove workstation`,
		account: true,
		run: operation(remove("/connectors"), func(in *invocation, c manage.Connector) error {
			in.printf("Connector %q (%s) is removed.\n", printable(c.Name), c.ID)
			return nil
		}),
	}},
}

func printCreatedConnector(in *invocation, c manage.CreatedConnector) error {
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
`, printable(c.Name), c.ID, c.TunnelToken, c.ID)
	return nil
}
