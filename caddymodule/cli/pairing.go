package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/store"
)

var pairingCommands = command{
	use: "pairing", short: "Pairs connectors by a code",
	long: `Pairs connectors by a code: the gateway creates a pairing code, the machine of
the model server uses it, and a person approves that machine. No token is copied.`,
	example: `  caddy gateway pairing start
  caddy gateway pairing list
  caddy gateway pairing approve PAIR-7K3M-Q9TX`,
	commands: []command{{
		use: "start", short: "Creates a pairing code for one device",
		long: `Creates a pairing code for one device, valid for 15 minutes, and prints the command
for the machine of the model server. The device then waits for approval.`,
		example: `  caddy gateway pairing start
  caddy gateway pairing start --json`,
		account: true,
		run: operation(send(http.MethodPost, "/pairings"), func(in *invocation, p manage.Pairing) {
			in.printf("The pairing code is %s. It works once, and expires %s.\n", p.Code, in.env.in(p.ExpiresAt))
			in.printPairCommands(p)
			in.printf(`
It prints a fingerprint and waits. Compare the fingerprint and approve the device:

  caddy gateway pairing approve %s
`, p.Code)
		}),
	}, list[manage.Pairing]{
		kind: "pairing", short: "Lists pairing codes and the devices that wait for approval",
		empty:  "Start one with `caddy gateway pairing start`.",
		header: []string{"ID", "CODE", "STATE", "DEVICE", "OS", "VERSION", "ADDRESS", "FINGERPRINT", "UPSTREAMS", "ENDS"},
		row:    pairingRow,
		notes:  printPairingNotes,
	}.command(), {
		use:   "approve CODE_OR_ID [--fingerprint F] [--name NAME | --replace NAME_OR_ID]",
		short: "Approves a waiting device",
		long: `Approves a waiting device as a connector. The device prints a fingerprint: pass it
as --fingerprint, so that no other device is approved. Without it, the command
shows the waiting device and asks on the terminal whether the fingerprints match.
--yes skips the comparison.

With --replace it replaces an existing connector: the id, the name and the
deployments stay, the old tunnel is closed, and the old token is invalid. It is
for a machine that lost its configuration, or was set up again.`,
		example: `  caddy gateway pairing approve PAIR-7K3M-Q9TX
  caddy gateway pairing approve PAIR-7K3M-Q9TX --fingerprint "3f9a 07c2 b1d4 5e60" --name workstation
  caddy gateway pairing approve PAIR-7K3M-Q9TX --replace workstation`,
		account: true,
		flags: func(f *pflag.FlagSet) {
			f.String("name", "", "The connector's name (default: the device's host name)")
			f.String("replace", "", "The name or id of the connector that the device replaces")
			f.String("fingerprint", "", "The fingerprint that the device shows")
			f.BoolP("yes", "y", false, "Skip the comparison of fingerprints")
		},
		run: operation(approval, func(in *invocation, p manage.Pairing) {
			as := "as connector " + p.Connector
			if p.Replaced {
				as = "in place of connector " + p.Connector
			}
			in.printf("%s is approved %s. If it is still waiting, it connects by itself.\n", deviceName(p), as)
		}),
	}, {
		use: "deny CODE_OR_ID", short: "Denies a waiting device, or cancels a code",
		example: `  caddy gateway pairing deny PAIR-7K3M-Q9TX`,
		account: true,
		run: operation(func(in *invocation) (request, error) {
			pairing, err := in.pairing()
			r := in.request(http.MethodPost, "/pairings/deny")
			r.body["pairing"] = pairing
			return r, err
		}, func(in *invocation, p manage.Pairing) {
			if p.Device == nil {
				in.printf("The code is canceled.\n")
			} else {
				in.printf("%s is denied.\n", deviceName(p))
			}
		}),
	}},
}

// printPairCommands prints the commands for the machine of the model server.
func (in *invocation) printPairCommands(p manage.Pairing) {
	c := cmp.Or(p.Commands, new(downloads.Commands))
	if c.Note != "" {
		in.printf("\n%s\n", c.Note)
	}
	if c.Install != "" {
		in.printf("\nOn the machine of the model server, run this command; --upstream is the address of\n"+
			"the model server. It installs the connector and pairs it:\n\n  %s\n\n"+
			"Where the connector is installed already:\n\n  %s\n", c.Install, c.Pair)
		return
	}
	pair := cmp.Or(c.Pair, "connector pair https://GATEWAY "+p.Code+" --upstream http://localhost:11434")
	in.printf("\nOn the machine of the model server, run this command; --upstream is the address of\n"+
		"the model server:\n\n  %s\n", pair)
}

// pairingRow returns a row of the list.
func pairingRow(in *invocation, p manage.Pairing) []string {
	ends := in.env.in(p.ExpiresAt)
	if p.DecidedAt != nil {
		ends = in.env.ago(p.DecidedAt)
	} else if p.State == store.PairingExpired {
		ends = in.env.ago(&p.ExpiresAt)
	}
	state := p.State
	if p.State == store.PairingPending && !p.Connected {
		state += ", disconnected"
	}
	var d store.Device
	if p.Device != nil {
		d = *p.Device
	}
	return []string{p.ID, p.Code, state, d.Hostname, d.OS, d.Version, d.Address, d.Fingerprint,
		strings.Join(d.Upstreams, ","), ends}
}

// printPairingNotes prints how to replace the connector of a machine that is paired
// again, and a warning while many wrong codes are tried.
func printPairingNotes(in *invocation, pairings []manage.Pairing) {
	for _, p := range pairings {
		if n := p.Namesake; n != nil {
			in.printf("\nA connector named %s is %s. If this is the same machine, replace that connector:\n\n"+
				"  caddy gateway pairing approve %s --replace %s\n", printable(n.Name), n.State, cmp.Or(p.Code, p.ID), n.ID)
		}
	}
	if slices.ContainsFunc(pairings, func(p manage.Pairing) bool { return p.Limited }) {
		in.printf("\nMany wrong pairing codes are being tried from many networks, so some codes are\n" +
			"refused unchecked. A device that is refused may have to try again.\n")
	}
}

// approval returns the request that approves a device.
func approval(in *invocation) (request, error) {
	r := in.request(http.MethodPost, "/pairings/approve", "name", "replace")
	if r.body["name"] != nil && r.body["replace"] != nil {
		return r, up.Usagef("--name and --replace exclude each other: a connector that is replaced keeps its name")
	}
	pairing, err := in.pairing()
	if err != nil {
		return r, err
	}
	r.body["pairing"] = pairing
	fingerprint, err := in.fingerprint(pairing)
	if fingerprint != "" {
		r.body["fingerprint"] = fingerprint
	}
	return r, err
}

// fingerprint returns the fingerprint that the device must have: the given one, or
// that of the waiting device after the user has compared it; "" with --yes.
func (in *invocation) fingerprint(pairing string) (string, error) {
	given := in.text("fingerprint")
	switch {
	case in.Flags().Changed("fingerprint") && strings.TrimSpace(given) == "":
		// An unset variable of a script must not mean "any".
		return "", up.Usagef("--fingerprint is empty; pass the fingerprint that the device shows, or --yes to skip the " +
			"comparison")
	case given != "" || in.is("yes"):
		return given, nil
	}
	var pairings []manage.Pairing
	if err := in.do(in.request(http.MethodGet, "/pairings"), &pairings); err != nil {
		return "", err
	}
	i := slices.IndexFunc(pairings, func(p manage.Pairing) bool { return p.ID == pairing || p.Code == pairing })
	if i < 0 || pairings[i].Device == nil {
		return "", errors.New(program.Named("no device waits with this code; `caddy gateway pairing list` shows the " +
			"waiting devices and their ids"))
	}
	d := pairings[i].Device
	in.warnf("%s waits at %s. Its fingerprint is\n\n  %s\n\n", printable(d.Hostname), printable(d.Address),
		printable(d.Fingerprint))
	err := in.env.confirm(in.Command, "Does its terminal show the same fingerprint?")
	if errors.Is(err, errNoTerminal) {
		err = up.Usagef("no terminal to ask on; add --fingerprint with the fingerprint that the device shows, or --yes")
	}
	return d.Fingerprint, err
}

// pairing returns the argument: a normalized pairing code, or the id of a pairing.
func (in *invocation) pairing() (string, error) {
	if strings.HasPrefix(in.arg, "pair_") {
		return in.arg, nil
	}
	code, ok := store.NormalizeCode(in.arg)
	if !ok {
		return "", up.Usagef("the argument is neither a pairing code, such as PAIR-7K3M-Q9TX, nor the id of a pairing; "+
			"usage: %s", in.UseLine())
	}
	return code, nil
}

// deviceName describes the device of a pairing.
func deviceName(p manage.Pairing) string {
	if p.Device == nil {
		return "The device"
	}
	return fmt.Sprintf("Device %q (%s, %s)", printable(p.Device.Hostname), printable(p.Device.Address),
		printable(p.Device.Fingerprint))
}
