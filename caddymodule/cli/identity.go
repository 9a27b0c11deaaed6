package cli

import (
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var identityCommands = command{
	use: "identity", short: "Shows and rotates the key that connectors know the gateway by",
	long: `Shows and rotates the key that connectors know the gateway by. Their tokens contain
its hash, the pin. A rotation creates the next key, and connectors store its pin in
addition to the present one, through their tunnels. When the grace period is over,
the gateway switches to the next key. No tunnel is interrupted.`,
	commands: []command{{
		use: "status", short: "Shows the pins, and the connectors without the next one",
		example: "  caddy gateway identity status",
		run:     operation(send(http.MethodGet, "/identity"), printIdentity),
	}, {
		use: "rotate [--grace DURATION] [--now] [--yes]", short: "Replaces the key, after a grace period",
		long: `Replaces the key after a grace period, in which both pins are valid. A connector that
is not online in that time, cannot write its configuration, or has an older program
must be paired again afterwards: "identity status" lists these.

With --now, for a key that may be known to others, the switch is after a few
seconds, in which connectors that are online store the pin. It also ends the grace
period of a pending rotation.`,
		example: `  caddy gateway identity rotate
  caddy gateway identity rotate --grace 168h
  caddy gateway identity rotate --now`,
		flags: func(f *pflag.FlagSet) {
			f.String("grace", "", "How long both pins are valid (default 720h)")
			f.Bool("now", false, "Switch at once")
			f.BoolP("yes", "y", false, "Skip the confirmation of --now")
		},
		run: rotateIdentity,
	}, {
		use: "cancel", short: "Ends a pending rotation; the key stays",
		example: "  caddy gateway identity cancel",
		run:     operation(send(http.MethodPost, "/identity/cancel"), printIdentity),
	}},
}

func rotateIdentity(in *invocation) error {
	now := in.is("now")
	if now && !in.is("yes") {
		if err := in.env.confirm(in.Command,
			"Drop the present key? Connectors that cannot store the new pin now must be paired again."); err != nil {
			return err
		}
	}
	return operation(func(in *invocation) (request, error) {
		r := in.request(http.MethodPost, "/identity/rotate", "grace")
		r.body["now"] = now
		return r, nil
	}, func(in *invocation, s manage.IdentityStatus) {
		if !now {
			printIdentity(in, s)
			return
		}
		in.printf("The gateway has the new key, its pin is %s.\n", s.NextPin)
		in.printMissing(s, "Pair these connectors again, with `pairing approve CODE --replace NAME`:")
	})(in)
}

// printIdentity prints the state of the identity.
func printIdentity(in *invocation, s manage.IdentityStatus) {
	in.printf("Pin        %s\n", s.Pin)
	if s.NextPin == "" {
		in.printf("No rotation is pending.\n")
		return
	}
	in.printf("Next pin   %s\n", s.NextPin)
	if s.SwitchAt != nil {
		in.printf("Switch     %s (%s)\n", s.SwitchAt.In(in.env.zone).Format(time.RFC1123), in.env.in(*s.SwitchAt))
	}
	in.printf("Stored by  %d of %d connectors\n", s.Connectors-len(s.Missing), s.Connectors)
	in.printMissing(s, "These connectors have not stored the next pin yet. Without it they must be paired again after "+
		"the switch:")
}

// printMissing prints the connectors without the next pin.
func (in *invocation) printMissing(s manage.IdentityStatus, title string) {
	if len(s.Missing) == 0 {
		return
	}
	in.printf("\n" + title + "\n\n")
	rows := [][]string{{"CONNECTOR", "ACCOUNT", "ID", "REASON"}}
	for _, m := range s.Missing {
		rows = append(rows, []string{m.Name, m.Account, m.ID, m.Reason})
	}
	in.err = printTable(in.OutOrStdout(), rows)
}
