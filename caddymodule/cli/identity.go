package cli

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var identityCommands = command{
	use: "identity", short: "Shows and rotates the key that connectors know the gateway by",
	long: `Shows and rotates the key that connectors know the gateway by. Their tokens contain
its hash, the pin. A rotation creates the next key, and connectors store its pin in
addition to the present one, through their tunnels. When the grace period is over,
the gateway switches to the next key. No tunnel is interrupted.`,
	commands: []command{{
		use: "status", operation: "GET /identity",
		example: "  caddy gateway identity status",
		print:   show(printIdentity),
	}, {
		use: "rotate [--grace DURATION] [--now] [--yes]", operation: "POST /identity/rotate",
		long: `Replaces the key after a grace period, in which both pins are valid. A connector that
is not online in that time, cannot write its configuration, or has an older program
must be paired again afterwards: "identity status" lists these.

Use --now if others may know the key. The gateway then switches after a few seconds,
in which connectors that are online store the pin. It also ends the grace period of
a pending rotation.`,
		example: `  caddy gateway identity rotate
  caddy gateway identity rotate --grace 168h
  caddy gateway identity rotate --now`,
		flags: confirmationFlag("Skip the confirmation of --now"),
		prepare: func(in *invocation, _ *request) error {
			if !in.is("now") {
				return nil
			}
			return in.confirm("Drop the present key? Connectors that cannot store the new pin now must be paired again.")
		},
		print: show(func(in *invocation, s manage.IdentityStatus) {
			if !in.is("now") {
				printIdentity(in, s)
				return
			}
			in.printf("The gateway has the new key, its pin is %s.\n", s.NextPin)
			in.printMissing(s, "Pair these connectors again, with `pairing approve CODE --replace NAME`:")
		}),
	}, {
		use: "cancel", operation: "POST /identity/cancel",
		example: "  caddy gateway identity cancel",
		print:   show(printIdentity),
	}},
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
		in.printf("Switch     %s (%s)\n", s.SwitchAt.In(in.env.zone).Format(time.RFC1123), in.env.until(*s.SwitchAt))
	}
	in.printf("Stored by  %d of %d connectors\n", s.Connectors-len(s.Missing), s.Connectors)
	in.printMissing(s, "These connectors have not stored the next pin yet. "+
		"Without it they must be paired again after the switch:")
}

// printMissing prints the connectors without the next pin.
func (in *invocation) printMissing(s manage.IdentityStatus, title string) {
	if len(s.Missing) == 0 {
		return
	}
	in.printf("\n" + title + "\n\n")
	list[manage.MissingPin]{columns: "CONNECTOR, ACCOUNT, ID, REASON"}.print(in, s.Missing)
}
