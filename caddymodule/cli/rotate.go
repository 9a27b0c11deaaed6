package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var rotateCommand = command{
	use: "rotate ID_OR_NAME [--show] [--yes]", short: "Gives a connector a new tunnel token",
	long: `Gives a connector a new tunnel token, on its tunnel: the connector writes it into
its configuration, and only then the old one is invalid. The tunnel and the
requests on it stay. A connector that is offline gets it when it comes back;
until then the old token is valid.

A connector that cannot write its configuration, or is too old for this, keeps
the old token. --show prints a new one, this once, to be put there by hand: the
old one is valid until the connector comes with the new one.`,
	example: `  caddy gateway connector rotate workstation
  caddy gateway connector rotate workstation --show`,
	account: true,
	flags: func(f *pflag.FlagSet) {
		f.Bool("show", false, "Print the new token, for a connector that cannot write its configuration")
		f.BoolP("yes", "y", false, "Skip the confirmation")
	},
	run: operation(func(in *invocation) (request, error) {
		if !in.is("yes") {
			if err := in.env.confirm(in.Command, fmt.Sprintf("Give connector %q a new tunnel token?", printable(in.arg))); err != nil {
				return request{}, err
			}
		}
		body := in.flagFields()
		body["show"] = in.is("show")
		return request{http.MethodPost, itemPath("/connectors", in.arg) + "/rotate", body}, nil
	}, printRotatedConnector),
}

// printRotatedConnector prints the result of a rotation. One that the connector
// cannot take part in is an error: it needs the user.
func printRotatedConnector(in *invocation, r manage.RotatedConnector) error {
	show := showCommand(r.ID, in.text("account"))
	switch r.State {
	case manage.Rotated:
		in.printf("Connector %q (%s) has a new tunnel token. The old one is invalid.\n", printable(r.Name), r.ID)
	case manage.RotationFailed:
		return fmt.Errorf("the connector %q cannot write its configuration: %s\n"+
			"The old token stays valid. Copy a new one into it; this prints it:\n\n  %s", printable(r.Name), printable(r.Problem), show)
	case manage.RotationByHand:
		in.printf(`The new tunnel token of connector %q (%s) is shown only this once:

  %s

Put it into tunnel_token of the connector's configuration, and then run there:

  connector reload

or restart it. The old token is valid until the connector comes with this one.
`, printable(r.Name), r.ID, r.TunnelToken)
	default:
		in.printf(`Connector %q (%s) has not taken its new tunnel token yet: it is offline, or of a
version that cannot. It is offered the token whenever it connects, and the old one
is valid until it has it. To bring it there by hand:

  %s
`, printable(r.Name), r.ID, show)
	}
	return nil
}

// showCommand prints a new token of a connector.
func showCommand(id, account string) string {
	command := "caddy gateway connector rotate " + id + " --show"
	if account != "" && account != store.DefaultAccount {
		command += " --account " + printable(account)
	}
	return command
}

// tokenState is the state of a connector's token in a table.
func (e environment) tokenState(c manage.Connector) string {
	switch {
	case c.Rotation != nil && c.Rotation.ByHand:
		return "rotating by hand since " + e.date(c.Rotation.Since)
	case c.Rotation != nil && c.Rotation.Problem != "":
		return "rotating since " + e.date(c.Rotation.Since) + ", see below"
	case c.Rotation != nil:
		return "rotating since " + e.date(c.Rotation.Since)
	case c.RotatedAt != nil:
		return "rotated " + e.ago(c.RotatedAt)
	}
	return ""
}

// printRotationProblems prints below a table of connectors what to do about
// those that cannot keep their new tokens.
func printRotationProblems(in *invocation, connectors []manage.Connector) {
	for _, c := range connectors {
		if c.Rotation != nil && c.Rotation.Problem != "" {
			in.printf("\nConnector %q cannot write its configuration: %s\nCopy a new token into it: %s\n",
				printable(c.Name), printable(c.Rotation.Problem), showCommand(c.ID, c.Account))
		}
	}
}
