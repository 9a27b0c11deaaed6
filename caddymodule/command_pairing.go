package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// pairingCommand builds `caddy gateway pairing`.
func pairingCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pairing",
		Short: "Pairs connectors by a claim code",
		Long: `Pairs connectors by a claim code: the gateway makes a code, the machine of the
model server shows it, and a person approves that machine. No token is copied.`,
		Example: `  caddy gateway pairing start
  caddy gateway pairing list
  caddy gateway pairing approve PAIR-7K3M-Q9TX`,
	}
	cmd.AddCommand(pairingStartCommand(env), pairingListCommand(env), pairingApproveCommand(env), pairingDenyCommand())
	commandGroup(cmd)
	return cmd
}

func pairingStartCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Makes a claim code for one device",
		Long: `Makes a claim code for one device, good for 15 minutes, and prints what to run on
the machine of the model server. The device then waits for its approval.`,
		Example: `  caddy gateway pairing start
  caddy gateway pairing start --json`,
	}
	takes(cmd)
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		client, err := newAdminClient(cmd)
		if err != nil {
			return err
		}
		var p manage.Pairing
		if err := client.call(http.MethodPost, "/pairings", accountOnly(cmd), &p); err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd.OutOrStdout(), p)
		}
		printStartedPairing(cmd.OutOrStdout(), p, client.url(), env.in(p.ExpiresAt))
		return nil
	})
	return cmd
}

func printStartedPairing(w io.Writer, p manage.Pairing, url, left string) {
	fmt.Fprintf(w, `The claim code is %s. It works once, and runs out %s.

On the machine of the model server, run this; --upstream is where the model
server listens:

  connector pair %s %s --upstream http://localhost:11434

It prints a fingerprint and waits. Let the device in; this asks whether the
fingerprint is the same:

  caddy gateway pairing approve %s
`, p.Code, left, url, p.Code, p.Code)
}

func pairingListCommand(env commandEnv) *cobra.Command {
	return list[manage.Pairing]{
		kind: "pairing", short: "Lists claim codes and the devices that wait for approval",
		empty:  "Start one with `caddy gateway pairing start`.",
		header: []string{"ID", "CODE", "STATE", "DEVICE", "OS", "VERSION", "ADDRESS", "FINGERPRINT", "UPSTREAMS", "ENDS"},
		row:    env.pairingRow,
		notes: func(cmd *cobra.Command, pairings []manage.Pairing) {
			printNamesakes(cmd.OutOrStdout(), pairings)
			if slices.ContainsFunc(pairings, func(p manage.Pairing) bool { return p.Limited }) {
				fmt.Fprint(cmd.OutOrStdout(), "\nMany wrong claim codes are being tried from many networks, so that some codes are\n"+
					"refused unchecked. A device that is refused may have to try again.\n")
			}
		},
	}.command()
}

// printNamesakes tells how a machine that is paired again gets its old place.
func printNamesakes(w io.Writer, pairings []manage.Pairing) {
	for _, p := range pairings {
		if n := p.Namesake; n != nil {
			fmt.Fprintf(w, "\nThere is a connector %s already, which is %s. If this is the same machine, let it have that place:\n\n"+
				"  caddy gateway pairing approve %s --replace %s\n", printable(n.Name), n.State, cmp.Or(p.Code, p.ID), n.ID)
		}
	}
}

// pairingRow is a line of the list.
func (e commandEnv) pairingRow(p manage.Pairing) []string {
	ends := e.in(p.ExpiresAt)
	if p.DecidedAt != nil {
		ends = e.ago(p.DecidedAt)
	} else if p.State == store.PairingExpired {
		ends = e.ago(&p.ExpiresAt)
	}
	state := p.State
	if p.State == store.PairingPending && !p.Connected {
		state += ", away"
	}
	var d store.Device
	if p.Device != nil {
		d = *p.Device
	}
	return []string{p.ID, p.Code, state, d.Hostname, d.OS, d.Version, d.Address, d.Fingerprint, strings.Join(d.Upstreams, ","), ends}
}

func pairingApproveCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve CODE_OR_ID [--fingerprint F] [--name NAME | --replace NAME_OR_ID]",
		Short: "Lets a device that waits in, as a connector",
		Long: `Lets a device that waits in, as a connector. The device prints a fingerprint: give
it as --fingerprint, so that no other device gets in. Without it, the command shows
the device that waits, and asks on the terminal whether it is the same; a script
that does not care says --yes.

With --replace it gets the place of a connector that there is: the id, the name
and the deployments stay, the old tunnel is closed, and the old token is of no use
any more. It is for a machine that lost its configuration, or was set up anew.`,
		Example: `  caddy gateway pairing approve PAIR-7K3M-Q9TX
  caddy gateway pairing approve PAIR-7K3M-Q9TX --fingerprint "3f9a 07c2 b1d4 5e60" --name workstation
  caddy gateway pairing approve PAIR-7K3M-Q9TX --replace workstation`,
	}
	takes(cmd, "CODE_OR_ID")
	cmd.Flags().String("name", "", "The connector's name (default: the device's host name)")
	cmd.Flags().String("replace", "", "The name or id of the connector whose place the device gets")
	cmd.Flags().String("fingerprint", "", "The fingerprint that the device shows")
	cmd.Flags().Bool("yes", false, "Do not ask whether the fingerprint is the same")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		request := accountOnly(cmd)
		setIf(request, "name", flagValue(cmd, "name"))
		setIf(request, "replace", flagValue(cmd, "replace"))
		if request["name"] != "" && request["replace"] != "" {
			return usagef("--name and --replace exclude each other: a connector that is replaced keeps its name")
		}
		fingerprint, err := compared(cmd, env, args[0])
		if err != nil {
			return err
		}
		setIf(request, "fingerprint", fingerprint)
		var p manage.Pairing
		if done, err := decide(cmd, args[0], "approve", request, &p); done || err != nil {
			return err
		}
		if p.Replaced {
			fmt.Fprintf(cmd.OutOrStdout(), "%s is approved, and has the place of connector %s now. It comes online by itself, if it still waits.\n", deviceName(p), p.Connector)
			return nil
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is approved, as connector %s. It comes online by itself, if it still waits.\n", deviceName(p), p.Connector)
		return nil
	})
	return cmd
}

func pairingDenyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deny CODE_OR_ID",
		Short:   "Refuses a device that waits, or calls a code off",
		Example: `  caddy gateway pairing deny PAIR-7K3M-Q9TX`,
	}
	takes(cmd, "CODE_OR_ID")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		var p manage.Pairing
		if done, err := decide(cmd, args[0], "deny", accountOnly(cmd), &p); done || err != nil {
			return err
		}
		if p.Device == nil {
			fmt.Fprintln(cmd.OutOrStdout(), "The code is called off.")
			return nil
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is denied.\n", deviceName(p))
		return nil
	})
	return cmd
}

// compared returns the fingerprint that the device must have: the given one, or
// that of the device that waits, after a person has compared it; "" with --yes.
func compared(cmd *cobra.Command, env commandEnv, codeOrID string) (string, error) {
	codeOrID, err := normalPairing(cmd, codeOrID)
	if err != nil {
		return "", err
	}
	yes, _ := cmd.Flags().GetBool("yes")
	given := flagValue(cmd, "fingerprint")
	switch {
	case cmd.Flags().Changed("fingerprint") && strings.TrimSpace(given) == "":
		// An unset variable of a script, say: that must not mean any.
		return "", usagef("--fingerprint is empty; give what the device shows, or --yes to approve whatever waits")
	case given != "" || yes:
		return given, nil
	}
	client, err := newAdminClient(cmd)
	if err != nil {
		return "", err
	}
	var pairings []manage.Pairing
	if err := client.call(http.MethodGet, withAccount("/pairings", flagValue(cmd, "account")), nil, &pairings); err != nil {
		return "", err
	}
	i := slices.IndexFunc(pairings, func(p manage.Pairing) bool { return p.ID == codeOrID || p.Code == codeOrID })
	if i < 0 || pairings[i].Device == nil {
		return "", errors.New("no device waits with this code; `caddy gateway pairing list` shows those that do, also by id")
	}
	d := pairings[i].Device
	fmt.Fprintf(cmd.ErrOrStderr(), "%s waits at %s. Its fingerprint is\n\n  %s\n\n", printable(d.Hostname), printable(d.Address), printable(d.Fingerprint))
	err = env.confirm(cmd, "Does its terminal show the same one?")
	if errors.Is(err, errNoTerminal) {
		err = usagef("there is no terminal to ask on; add --fingerprint with what the device shows, or --yes")
	}
	return d.Fingerprint, err
}

// normalPairing is a claim code as it was made, or the id of a pairing.
func normalPairing(cmd *cobra.Command, codeOrID string) (string, error) {
	if strings.HasPrefix(codeOrID, "pair_") {
		return codeOrID, nil
	}
	code, ok := store.NormalizeCode(codeOrID)
	if !ok {
		return "", usagef("that is neither a claim code, such as PAIR-7K3M-Q9TX, nor the id of a pairing; usage: %s", cmd.UseLine())
	}
	return code, nil
}

// decide approves or denies the pairing that the command names, by its claim
// code or its id.
func decide(cmd *cobra.Command, codeOrID, decision string, request map[string]string, out *manage.Pairing) (done bool, err error) {
	if request["pairing"], err = normalPairing(cmd, codeOrID); err != nil {
		return false, err
	}
	return perform(cmd, http.MethodPost, "/pairings/"+decision, request, out)
}

// deviceName is the device of a pairing in a sentence.
func deviceName(p manage.Pairing) string {
	if p.Device == nil {
		return "The device"
	}
	return fmt.Sprintf("Device %q (%s, %s)", printable(p.Device.Hostname), printable(p.Device.Address), printable(p.Device.Fingerprint))
}

// accountOnly is a request that says no more than the account.
func accountOnly(cmd *cobra.Command) map[string]string {
	request := map[string]string{}
	setIf(request, "account", flagValue(cmd, "account"))
	return request
}
