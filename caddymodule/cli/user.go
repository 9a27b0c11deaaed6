package cli

import (
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var userCommands = command{
	use: "user", short: "Adds, lists and removes users of the console",
	commands: []command{{
		use: "add NAME [--role ROLE] [--password-stdin]", operation: "POST /users", argument: "name",
		long: `Adds a user of the console. The command asks for the password without an echo, or
reads it from the standard input with --password-stdin. It must have at least 10
characters.`,
		example: `  caddy gateway user add anna
  caddy gateway user add anna --account research --password-stdin < password.txt`,
		flags: func(f *pflag.FlagSet) {
			f.Bool("password-stdin", false, "Read the password from the standard input")
		},
		prepare: func(in *invocation, r *request) error {
			password, err := newPassword(in)
			r.set("password", password)
			return err
		},
		print: show(func(in *invocation, u manage.User) {
			in.printf("User %q (%s) is added to account %q with the role %s.\n", u.Name, u.ID, u.Account, string(u.Role))
		}),
	}, {
		use: "list", operation: "GET /users", example: "  caddy gateway user list",
		print: list[manage.User]{
			columns: "ID, NAME, ROLE, ACCOUNT, PASSKEYS, CREATED",
			empty: "No users yet. `caddy gateway setup-link` prints a link for the first, `caddy gateway user add NAME` " +
				"adds one.",
		}.print,
	}, {
		use: "set ID_OR_NAME --role ROLE", operation: "PATCH /users/{id}",
		long: `Changes the role of a user of the console. The new role applies at once, also to
open pages and management tokens of the user. The last admin keeps this role.

An admin may do everything in the account. A member creates and changes API keys of
its own, and sees their use and the models. A viewer sees everything but secrets, and
changes nothing.`,
		example: `  caddy gateway user set anna --role viewer`,
		print: show(func(in *invocation, u manage.User) {
			in.printf("User %q (%s) has the role %s now.\n", u.Name, u.ID, string(u.Role))
		}),
	}, {
		use: "link ID_OR_NAME --issuer URL --subject SUB", operation: "POST /users/{id}/link",
		long: `Lets a person at an OpenID Connect issuer of the configuration sign in as a user, whose
keys, role and name stay. It is needed if the subjects have changed, because of a new
issuer or a new client. The person then has no user of their own.`,
		example: `  caddy gateway user link anna --issuer https://id.example.com --subject 7c0e9d1b`,
		print: show(func(in *invocation, u manage.User) {
			in.printf("User %q (%s) signs in by %s.\n", u.Name, u.ID, in.text("issuer"))
		}),
	}, {
		use: "unlink ID_OR_NAME --issuer URL --subject SUB", operation: "POST /users/{id}/unlink",
		long: `Takes an identity at an issuer from a user, and ends the sessions that this issuer has
begun. The last way to sign in cannot be unlinked. The subjects are in the list of
users with --json.`,
		example: `  caddy gateway user unlink anna --issuer https://id.example.com --subject 7c0e9d1b`,
		print: show(func(in *invocation, u manage.User) {
			in.printf("User %q (%s) no longer signs in with this identity.\n", u.Name, u.ID)
		}),
	}, {
		use: "remove ID_OR_NAME [--keys revoke|keep|give=NAME]", operation: "DELETE /users/{id}",
		long: `Removes a user, with all sessions, passkeys, management tokens and invitations of
the user. If the user has API keys, --keys is needed: it revokes them, gives them to
another user, or keeps them. Kept keys, usage and activity name the owner "anna
(removed)". Connectors and deployments stay.`,
		example: `  caddy gateway user remove anna --keys revoke
  caddy gateway user remove anna --keys give=bert`,
		print: show(func(in *invocation, u manage.RemovedUser) {
			in.printf("User %q (%s) is removed.\n", u.Name, u.ID)
			for _, k := range u.Keys {
				in.printf("Key %q is %s; its owner is %s.\n", k.Name, k.State, k.OwnerName)
			}
		}),
	}, {
		use: "recovery-link ID_OR_NAME", operation: "POST /users/{id}/recovery-link",
		long: `Prints a link with which a user sets a new password. It works once, for 15 minutes,
and ends the user's sessions when it is used. Its page also offers to remove the
user's passkeys, and to revoke management tokens and invitations.`,
		example: `  caddy gateway user recovery-link anna`,
		print:   printLink("Send this link to the user. It sets a new password, works once, and expires"),
	}},
}

var setupLinkCommand = command{
	use: "setup-link", operation: "POST /setup-link",
	long: `Prints a link that creates the first user of the console. It works once, for 15
minutes, and only while no user exists. A new link invalidates the previous one.`,
	example: `  caddy gateway setup-link`,
	print:   printLink("Open this link to become the first user. It works once, and expires"),
}

func printLink(text string) func(*invocation, any) {
	return show(func(in *invocation, link manage.Link) {
		in.printf("%s %s:\n\n  %s\n\n", text, in.env.until(link.ExpiresAt), link.URL)
	})
}
