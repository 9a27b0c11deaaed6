package cli

import (
	"fmt"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var identityCommands = command{
	use: "identity", short: "Shows and replaces the key that connectors know the gateway by",
	long: `Shows and replaces the key that connectors know the gateway by. Their tokens contain
its hash, the pin.`,
	commands: []command{{
		use: "status", operation: "GET /identity",
		example: "  caddy gateway identity status",
		print: show(func(in *invocation, i manage.Identity) {
			in.printf("Pin         %s\nConnectors  %d\n", i.Pin, i.Connectors)
		}),
	}, {
		use: "rotate [--yes]", operation: "POST /identity/rotate",
		long: `Replaces the key at once, for example if others may know it. All tunnels end, and
each connector must be paired again, or get a new token with "connector rotate".`,
		example: "  caddy gateway identity rotate",
		flags:   confirmationFlag("Skip the confirmation"),
		prepare: func(in *invocation, _ *request) error {
			if in.is("yes") {
				return nil
			}
			var now manage.Identity
			if err := in.do(in.newRequest("GET /identity"), &now); err != nil {
				return err
			}
			return in.confirm(fmt.Sprintf("Replace the key now? Connectors that go offline, and must be paired again: %d.",
				now.Connectors))
		},
		print: show(func(in *invocation, i manage.Identity) {
			in.printf(`The gateway has a new key. Its pin is %s.
Connectors that must be paired again: %d. On the machine of each:

  connector pair URL CODE --force

and here, so that it keeps its name and its models:

  caddy gateway pairing approve CODE --replace NAME

To copy a token instead, use `+"`caddy gateway connector rotate NAME`.\n", i.Pin, i.Connectors)
		}),
	}},
}
