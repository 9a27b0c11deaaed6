package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

var pairingCommands = command{
	use: "pairing", short: "Pairs connectors by a code",
	long: `Pairs connectors by a code: the gateway creates a pairing code, the machine of
the model server uses it, and a person approves that machine. No token is copied.`,
	example: `  caddy gateway pairing start
  caddy gateway pairing list
  caddy gateway pairing approve PAIR-7K3M-Q9TX`,
	commands: []command{{
		use: "start", operation: "POST /pairings",
		long: `Creates a pairing code for one device, valid for 15 minutes, and prints the command
for the machine of the model server. The device then waits for approval.`,
		example: `  caddy gateway pairing start
  caddy gateway pairing start --json`,
		print: show(func(in *invocation, p manage.Pairing) {
			in.printf("The pairing code is %s. It works once, and expires %s.\n", p.Code, in.env.until(p.ExpiresAt))
			in.printPairCommands(p)
			in.printf(`
It prints a fingerprint and waits. Compare the fingerprint and approve the device:

  caddy gateway pairing approve %s
`, p.Code)
		}),
	}, {
		use: "list", operation: "GET /pairings", example: "  caddy gateway pairing list",
		print: list[manage.Pairing]{
			columns: "ID, CODE, STATE, DEVICE, OS, VERSION, ADDRESS, FINGERPRINT, UPSTREAMS, ENDS",
			cells: cells[manage.Pairing]{
				"STATE": pairingState,
				"UPSTREAMS": func(_ *invocation, p manage.Pairing) string {
					return strings.Join(cmp.Or(p.Device, new(store.Device)).Upstreams, ",")
				},
				"ENDS": pairingEnd,
			},
			empty: "No pairings yet. Start one with `caddy gateway pairing start`.",
			notes: printPairingNotes,
		}.print,
	}, {
		use:       "approve CODE_OR_ID [--fingerprint F] [--name NAME | --replace NAME_OR_ID]",
		operation: "POST /pairings/approve", argument: "pairing",
		long: `Approves a waiting device as a connector. The device prints a fingerprint: pass it
as --fingerprint, so that no other device is approved. Without it, the command
shows the waiting device and asks on the terminal whether the fingerprints match.
--yes skips the comparison.

With --replace, the device replaces an existing connector, whose id, name and
deployments stay. The old tunnel is closed, and the old token is invalid. Use it for
a machine that has lost its configuration, or was set up again.`,
		example: `  caddy gateway pairing approve PAIR-7K3M-Q9TX
  caddy gateway pairing approve PAIR-7K3M-Q9TX --fingerprint "3f9a 07c2 b1d4 5e60" --name workstation
  caddy gateway pairing approve PAIR-7K3M-Q9TX --replace workstation`,
		flags:   confirmationFlag("Skip the comparison of fingerprints"),
		prepare: prepareApproval,
		print: show(func(in *invocation, p manage.Pairing) {
			as := "as"
			if p.Replaced {
				as = "in place of"
			}
			var c manage.Connector
			in.arg = p.Connector
			_ = in.do(in.newRequest("GET /connectors/{id}"), &c)
			in.printf("%s is approved %s connector %q. If it is still waiting, it connects by itself.\n", deviceName(p), as,
				cmp.Or(c.Name, p.Connector))
		}),
	}, {
		use: "deny CODE_OR_ID", operation: "POST /pairings/deny", argument: "pairing",
		example: `  caddy gateway pairing deny PAIR-7K3M-Q9TX`,
		prepare: normalizePairing,
		print: show(func(in *invocation, p manage.Pairing) {
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
		fmt.Fprintf(in.OutOrStdout(), "\n%s\n", text.Lines(c.Note))
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

// pairingState returns the state of a pairing, and whether its device is connected.
func pairingState(_ *invocation, p manage.Pairing) string {
	if p.State == store.PairingPending && !p.Connected {
		return p.State + ", disconnected"
	}
	return p.State
}

// pairingEnd returns when a pairing ends or has ended.
func pairingEnd(in *invocation, p manage.Pairing) string {
	switch {
	case p.DecidedAt != nil:
		return in.env.ago(p.DecidedAt)
	case p.State == store.PairingExpired:
		return in.env.ago(&p.ExpiresAt)
	}
	return in.env.until(p.ExpiresAt)
}

// printPairingNotes prints how to replace the connector of a machine that is paired again, and a
// warning while many wrong codes are tried.
func printPairingNotes(in *invocation, pairings []manage.Pairing) {
	for _, p := range pairings {
		if n := p.Namesake; n != nil {
			in.printf("\nA connector named %s is %s. If this is the same machine, replace that connector:\n\n"+
				"  caddy gateway pairing approve %s --replace %s\n", n.Name, n.State, cmp.Or(p.Code, p.ID), n.ID)
		}
	}
	if slices.ContainsFunc(pairings, func(p manage.Pairing) bool { return p.Limited }) {
		in.printf("\nMany wrong pairing codes are being tried from many networks, so some codes are\n" +
			"refused unchecked. A device that is refused may have to try again.\n")
	}
}

// prepareApproval completes the request that approves a device: with the fingerprint that it must
// have, unless --yes is given.
func prepareApproval(in *invocation, r *request) error {
	if r.body["name"] != nil && r.body["replace"] != nil {
		return up.Usagef("use either --name or --replace: a replaced connector keeps its name")
	}
	if err := normalizePairing(in, r); err != nil {
		return err
	}
	given := in.text("fingerprint")
	switch {
	case in.Flags().Changed("fingerprint") && strings.TrimSpace(given) == "":
		// An unset variable of a script must not mean "any".
		return up.Usagef("--fingerprint is empty; pass the fingerprint that the device shows, or --yes to skip the " +
			"comparison")
	case given != "" || in.is("yes"):
		return nil
	}
	fingerprint, err := in.compareFingerprint(r.body["pairing"])
	r.set("fingerprint", fingerprint)
	return err
}

// compareFingerprint asks the user to compare the fingerprint of a waiting device, and returns it.
func (in *invocation) compareFingerprint(pairing any) (string, error) {
	var pairings []manage.Pairing
	if err := in.do(in.newRequest("GET /pairings"), &pairings); err != nil {
		return "", err
	}
	i := slices.IndexFunc(pairings, func(p manage.Pairing) bool { return p.ID == pairing || p.Code == pairing })
	if i < 0 || pairings[i].Device == nil {
		return "", errors.New(program.Named("no device waits with this code; `caddy gateway pairing list` shows the " +
			"waiting devices and their ids"))
	}
	d := pairings[i].Device
	in.warnf("%s waits at %s. Its fingerprint is\n\n  %s\n\n", d.Hostname, d.Address, d.Fingerprint)
	err := in.env.confirm(in.Command, "Does its terminal show the same fingerprint?")
	if errors.Is(err, errNoTerminal) {
		err = up.Usagef("no terminal to ask on; add --fingerprint with the fingerprint that the device shows, or --yes")
	}
	return d.Fingerprint, err
}

// normalizePairing checks the argument: a pairing code, which it normalizes, or the id of a
// pairing.
func normalizePairing(in *invocation, r *request) error {
	if strings.HasPrefix(in.arg, "pair_") {
		return nil
	}
	code, ok := store.NormalizeCode(in.arg)
	if !ok {
		return up.Usagef("the argument is neither a pairing code, such as PAIR-7K3M-Q9TX, nor the id of a pairing; "+
			"usage: %s", in.UseLine())
	}
	r.set("pairing", code)
	return nil
}

// deviceName describes the device of a pairing.
func deviceName(p manage.Pairing) string {
	if p.Device == nil {
		return "The device"
	}
	return fmt.Sprintf("Device %q (%s, %s)", text.Line(p.Device.Hostname), text.Line(p.Device.Address),
		text.Line(p.Device.Fingerprint))
}
