package cli

import (
	"net/http"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/manage"
)

const roleUsage = "What the user may do: admin, member or viewer"

var userCommands = command{
	use: "user", short: "Adds, lists and removes users of the console",
	commands: []command{{
		use: "add NAME [--role ROLE] [--password-stdin]", short: "Adds a user of the console",
		long: `Adds a user of the console. The password is asked for without an echo, or read
from the standard input with --password-stdin. It must have at least 10
characters.`,
		example: `  caddy gateway user add anna
  caddy gateway user add anna --account research --password-stdin < password.txt`,
		account: true,
		flags: func(f *pflag.FlagSet) {
			f.String("role", "admin", roleUsage)
			f.Bool("password-stdin", false, "Read the password from the standard input")
		},
		run: operation(func(in *invocation) (request, error) {
			password, err := newPassword(in)
			r := in.request(http.MethodPost, "/users", "role")
			r.body["name"], r.body["password"] = in.arg, password
			return r, err
		}, func(in *invocation, u manage.User) {
			in.printf("User %q (%s) is added to account %q with the role %s.\n", printable(u.Name), u.ID, printable(u.Account),
				printable(string(u.Role)))
		}),
	}, list[manage.User]{
		kind: "user", short: "Lists users of the console",
		empty:  "`caddy gateway setup-link` prints a link for the first, `caddy gateway user add NAME` adds one.",
		header: []string{"ID", "NAME", "ROLE", "ACCOUNT", "PASSKEYS", "CREATED"},
		row: func(in *invocation, u manage.User) []string {
			return []string{u.ID, u.Name, string(u.Role), u.Account, strconv.Itoa(u.Passkeys), in.env.date(u.CreatedAt)}
		},
	}.command(), {
		use: "set ID_OR_NAME --role ROLE", short: "Changes the role of a user",
		long: `Changes the role of a user of the console. It is in force at once, also for open
pages and management tokens of the user. The last admin of an account stays one.

An admin may do everything in the account. A member creates and changes API keys of
its own, and sees their use and the models. A viewer sees everything but secrets, and
changes nothing.`,
		example:  `  caddy gateway user set anna --role viewer`,
		account:  true,
		required: []string{"role"},
		flags:    func(f *pflag.FlagSet) { f.String("role", "", roleUsage) },
		run: operation(send(http.MethodPatch, "/users/{}", "role"), func(in *invocation, u manage.User) {
			in.printf("User %q (%s) has the role %s now.\n", printable(u.Name), u.ID, printable(string(u.Role)))
		}),
	}, {
		use: "remove ID_OR_NAME", short: "Removes a user of the console",
		long: `Removes a user, with all sessions, passkeys, management tokens and invitations of
the user. API keys and connectors belong to the account, and stay.`,
		example: `  caddy gateway user remove anna`,
		account: true,
		run: operation(send(http.MethodDelete, "/users/{}"), func(in *invocation, u manage.User) {
			in.printf("User %q (%s) is removed.\n", printable(u.Name), u.ID)
		}),
	}, {
		use: "recovery-link ID_OR_NAME", short: "Prints a link with which a user sets a new password",
		long: `Prints a link with which a user sets a new password. It works once, for 15 minutes,
and ends the user's sessions when it is used. Its page also offers to remove the
user's passkeys, and to revoke management tokens and invitations.`,
		example: `  caddy gateway user recovery-link anna`,
		account: true,
		run: operation(send(http.MethodPost, "/users/{}/recovery-link"),
			printLink("Send this link to the user. It sets a new password, works once, and expires")),
	}},
}

var setupLinkCommand = command{
	use: "setup-link", short: "Prints a link that creates the first user of the console",
	long: `Prints a link that creates the first user of the console. It works once, for 15
minutes, and only while no user exists. A new link invalidates the previous one.`,
	example: `  caddy gateway setup-link`,
	run: operation(send(http.MethodPost, "/setup-link"),
		printLink("Open this link to become the first user. It works once, and expires")),
}

func printLink(what string) func(*invocation, manage.Link) {
	return func(in *invocation, link manage.Link) {
		in.printf("%s %s:\n\n  %s\n\n", what, in.env.in(link.ExpiresAt), link.URL)
	}
}
