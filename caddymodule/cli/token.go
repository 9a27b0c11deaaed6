package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

var tokenCommands = command{
	use: "token", short: "Creates, lists and revokes management tokens",
	long: `Creates, lists and revokes management tokens. Programs use them for the management
API of the console. For requests to models, use keys.`,
	commands: []command{{
		use:       "create --name NAME --user USER [--rights RIGHTS] [--role ROLE] [--days N]",
		operation: "POST /tokens",
		long: `Creates a management token and prints it. It is not stored and cannot be shown
again.

The rights are a comma-separated list of:

  read         see everything of the account but secrets
  keys         create, revoke and remove API keys
  connectors   create, rotate and remove connectors, and pair devices
  deployments  set, test and remove deployments

A token may never do more than its user. With --role member, it is confined
to the keys of the user. No token can create tokens, users or links.`,
		example: `  caddy gateway token create --name monitoring --user anna
  caddy gateway token create --name ci --user anna --rights keys,deployments --days 90`,
		flags:   func(f *pflag.FlagSet) { f.Int("days", 0, "Days until it expires (default: never)") },
		prepare: prepareToken,
		print: show(func(in *invocation, t manage.CreatedToken) {
			in.printf(`Management token %q created. It is shown only this once, so store it now:

  %s

  id       %s
  rights   %s
  role     %s
  expires  %s
`, t.Name, t.Token, t.ID, t.Rights, text.Line(string(t.Role)), in.env.end(t.ExpiresAt))
		}),
	}, {
		use: "list", operation: "GET /tokens", example: "  caddy gateway token list",
		print: list[manage.Token]{
			columns: "ID, NAME, USER, RIGHTS, ROLE, CREATED, LAST USED, EXPIRES",
			empty:   "No tokens yet. Create one with `caddy gateway token create --name NAME --user USER`.",
		}.print,
	}, {
		use: "revoke ID", operation: "DELETE /tokens/{id}",
		long: `Revokes a management token. When the command returns, new requests with it are
refused. What it created or changed stays: the lists of keys, connectors and
deployments show that with --json, as created_by, rotated_by and changed_by.`,
		example: `  caddy gateway token revoke mgt_06b3kz9v6dfx7fbv7wq7m5r2qm`,
		print: show(func(in *invocation, t manage.Token) {
			in.printf("Management token %q (%s) is revoked.\n", t.Name, t.ID)
		}),
	}},
}

// prepareToken checks the user and the rights of a new token, and adds its expiry.
func prepareToken(in *invocation, r *request) error {
	if in.text("user") == "" {
		return in.missing("user")
	}
	if rights, ok := r.body["rights"].([]string); ok {
		if _, err := store.ParseRights(rights); err != nil {
			return up.UsageError{Err: err}
		}
	}
	if days, _ := in.Flags().GetInt("days"); in.Flags().Changed("days") {
		if days < 1 {
			return up.Usagef("--days is %d, but must be at least 1; leave it out for a token that does not expire", days)
		}
		r.set("expires_at", in.env.now().UTC().AddDate(0, 0, days).Format(time.RFC3339))
	}
	return nil
}
