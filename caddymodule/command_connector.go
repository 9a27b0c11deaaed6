package caddymodule

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// connectorCommand builds `caddy gateway connector`.
func connectorCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connector",
		Short: "Creates, lists and removes connectors, and gives them new tokens",
	}
	cmd.AddCommand(connectorCreateCommand(), connectorListCommand(env), connectorRotateCommand(env), connectorRemoveCommand())
	commandGroup(cmd)
	return cmd
}

func connectorCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create --name NAME",
		Short: "Creates a connector and prints its tunnel token, this once",
		Long: `Creates a connector and prints the tunnel token that its configuration needs.
The token is not stored and cannot be shown again.`,
		Example: `  caddy gateway connector create --name workstation`,
	}
	takes(cmd)
	cmd.Flags().String("name", "", "A name of your choice for the machine (required)")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		name, err := needs(cmd, "name", "caddy gateway connector create --name workstation")
		if err != nil {
			return err
		}
		request := map[string]string{"name": name}
		setIf(request, "account", flagValue(cmd, "account"))
		var c manage.CreatedConnector
		if done, err := perform(cmd, http.MethodPost, "/connectors", request, &c); done || err != nil {
			return err
		}
		printCreatedConnector(cmd.OutOrStdout(), c)
		return nil
	})
	return cmd
}

func printCreatedConnector(w io.Writer, c manage.CreatedConnector) {
	fmt.Fprintf(w, `Connector %q (%s) created. Its tunnel token is shown only this once.

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
}

func connectorListCommand(env commandEnv) *cobra.Command {
	return list[manage.Connector]{
		kind: "connector", short: "Lists connectors and their live state",
		empty:  "Create one with `caddy gateway connector create --name NAME`.",
		header: []string{"ID", "NAME", "STATE", "TRANSPORT", "REMOTE", "VERSION", "UPSTREAMS", "SINCE", "TOKEN"},
		row: func(c manage.Connector) []string {
			since, upstreams := "", make([]string, len(c.Upstreams))
			if at := cmp.Or(c.Since, c.LastSeenAt); at != nil {
				since = env.ago(at)
			}
			for i, u := range c.Upstreams {
				upstreams[i] = u.String()
			}
			return []string{c.ID, c.Name, c.State, c.Transport, c.Remote, c.Version, strings.Join(upstreams, ", "), since, env.tokenState(c)}
		},
		notes: func(cmd *cobra.Command, connectors []manage.Connector) {
			printRotationProblems(cmd.OutOrStdout(), connectors)
		},
	}.command()
}

func connectorRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID_OR_NAME",
		Short: "Removes a connector",
		Long: `Removes a connector and closes its tunnel. Its token is of no use afterwards.
It is refused while deployments lead to the connector.`,
		Example: `  caddy gateway connector remove workstation`,
	}
	takes(cmd, "ID_OR_NAME")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		var c manage.Connector
		if done, err := deleteItem(cmd, "/connectors", args[0], &c); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Connector %q (%s) is removed.\n", printable(c.Name), c.ID)
		return nil
	})
	return cmd
}
