package caddymodule

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

func connectorRotateCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate ID_OR_NAME [--show] [--yes]",
		Short: "Gives a connector a new tunnel token",
		Long: `Gives a connector a new tunnel token, on its tunnel: the connector writes it into
its configuration, and only then the old one is of no more use. The tunnel and
the requests on it stay. A connector that is offline gets it when it comes back;
until then the old token is valid.

A connector that cannot write its configuration, or is too old to know of this,
keeps the old token. --show prints a new one, this once, to be put there by hand:
the old one is valid until the connector comes with the new one.`,
		Example: `  caddy gateway connector rotate workstation
  caddy gateway connector rotate workstation --show`,
	}
	takes(cmd, "ID_OR_NAME")
	cmd.Flags().Bool("show", false, "Print the new token, for a connector that cannot write its configuration")
	cmd.Flags().BoolP("yes", "y", false, "Do not ask")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the name is empty; usage: %s", cmd.UseLine())
		}
		if yes, _ := cmd.Flags().GetBool("yes"); !yes {
			if err := env.confirm(cmd, fmt.Sprintf("Give connector %q a new tunnel token?", printable(args[0]))); err != nil {
				return err
			}
		}
		show, _ := cmd.Flags().GetBool("show")
		request := map[string]any{"show": show}
		if account := flagValue(cmd, "account"); account != "" {
			request["account"] = account
		}
		var r manage.RotatedConnector
		path := itemPath("/connectors", args[0], "") + "/rotate"
		if done, err := perform(cmd, http.MethodPost, path, request, &r); done || err != nil {
			return err
		}
		return printRotatedConnector(cmd.OutOrStdout(), r, flagValue(cmd, "account"))
	})
	return cmd
}

// printRotatedConnector tells what became of a rotation. One that the connector
// cannot take part in is an error: somebody has to do something.
func printRotatedConnector(w io.Writer, r manage.RotatedConnector, account string) error {
	switch r.State {
	case manage.Rotated:
		fmt.Fprintf(w, "Connector %q (%s) has a new tunnel token. The old one is of no use any more.\n", printable(r.Name), r.ID)
	case manage.RotationFailed:
		return fmt.Errorf("the connector %q cannot write its configuration: %s\n"+
			"The old token stays valid. Copy a new one into it; this prints it:\n\n  %s", printable(r.Name), printable(r.Problem), showCommand(r.ID, account))
	case manage.RotationByHand:
		fmt.Fprintf(w, `The new tunnel token of connector %q (%s) is shown only this once:

  %s

Put it into tunnel_token of the connector's configuration, and then run there:

  connector reload

or start it anew. The old token is valid until the connector comes with this one.
`, printable(r.Name), r.ID, r.TunnelToken)
	default:
		fmt.Fprintf(w, `Connector %q (%s) has not taken its new tunnel token yet: it is offline, or of a
version that cannot. It is offered the token whenever it connects, and the old one
is valid until it has it. To bring it there by hand:

  %s
`, printable(r.Name), r.ID, showCommand(r.ID, account))
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

// tokenState says in a table what there is to say of a connector's token.
func (e commandEnv) tokenState(c manage.Connector) string {
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

// printRotationProblems says below a table of connectors what to do about those
// that cannot keep their new tokens.
func printRotationProblems(w io.Writer, connectors []manage.Connector) {
	for _, c := range connectors {
		if c.Rotation != nil && c.Rotation.Problem != "" {
			fmt.Fprintf(w, "\nConnector %q cannot write its configuration: %s\nCopy a new token into it: %s\n",
				printable(c.Name), printable(c.Rotation.Problem), showCommand(c.ID, c.Account))
		}
	}
}

// errDeclined: a person said no.
var errDeclined = errors.New("not done")

// errNoTerminal says that there is no terminal to ask on.
var errNoTerminal = errors.New("there is no terminal to ask on; add --yes")

// terminalConfirm asks a person on the terminal; anything but yes is an error.
func terminalConfirm(cmd *cobra.Command, question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return usageError{errNoTerminal}
	}
	return readConfirmation(cmd, question)
}

func readConfirmation(cmd *cobra.Command, question string) error {
	fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] ")
	answer, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), maxPasswordLine)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}
