package cli

import (
	"net/http"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var keyCommands = command{
	use: "key", short: "Creates, lists, revokes and removes API keys",
	commands: []command{{
		use: "create --name NAME [--scope SCOPE]", short: "Creates an API key and prints it once",
		long: `Creates an API key and prints it. It is not stored and cannot be shown again.

The scope lists the deployments that the key may use: comma-separated names or
patterns. "*" matches any characters, "?" one character.`,
		example: `  caddy gateway key create --name laptop
  caddy gateway key create --name ci --scope "qwen*,llama3.2:3b" --json`,
		account: true, required: []string{"name"},
		flags: func(f *pflag.FlagSet) {
			f.String("name", "", "What the key is for (required)")
			f.String("scope", "", `The deployments it may use (default "*", all of them)`)
		},
		run: operation(keyRequest, func(in *invocation, key manage.CreatedKey) {
			in.printf(`Key %q created. It is shown only this once, so store it now:

  %s

  id     %s
  scope  %s

Try it:

  curl %s/v1/models -H "Authorization: Bearer %s"
`, printable(key.Name), key.Key, key.ID, printable(key.Scope), in.url(), key.Key)
		}),
	}, list[store.Key]{
		kind: "key", short: "Lists API keys",
		empty:  "Create one with `caddy gateway key create --name NAME`.",
		header: []string{"ID", "NAME", "SCOPE", "CREATED", "LAST USED", "STATE"},
		row: func(in *invocation, k store.Key) []string {
			state := "active"
			if k.RevokedAt != nil {
				state = "revoked " + in.env.ago(k.RevokedAt)
			}
			return []string{k.ID, k.Name, k.Scope, in.env.date(k.CreatedAt), in.env.ago(k.LastUsedAt), state}
		},
	}.command(), {
		use: "revoke ID", short: "Revokes an API key",
		long: `Revokes an API key. When the command returns, new requests with the key are
refused and its running requests have been stopped. A revoked key stays in the
list; it can be revoked again, which changes nothing. With several gateways on
one store, that waits once more until all of them have confirmed it.`,
		example: `  caddy gateway key revoke key_06b3kz9v6dfx7fbv7wq7m5r2qm`,
		account: true,
		run: operation(send(http.MethodDelete, "/keys/{}"), func(in *invocation, key manage.DeletedKey) {
			what := "is revoked"
			if key.Already {
				what = "was revoked already"
			}
			in.printf("Key %q (%s) %s.\n", printable(key.Name), key.ID, what)
		}),
	}, {
		use: "remove ID", short: "Removes an API key from the list",
		long: `Removes an API key from the list. An active key is revoked first. Revoked keys
are removed automatically after 90 days.`,
		example: `  caddy gateway key remove key_06b3kz9v6dfx7fbv7wq7m5r2qm`,
		account: true,
		run: operation(func(in *invocation) (request, error) {
			return in.request(http.MethodDelete, "/keys/{}").with("record", "remove"), nil
		}, func(in *invocation, key manage.DeletedKey) {
			in.printf("Key %q (%s) is removed.\n", printable(key.Name), key.ID)
		}),
	}},
}

func keyRequest(in *invocation) (request, error) {
	if in.Flags().Changed("scope") && in.text("scope") == "" {
		// An unset variable of a script must not mean "all".
		return request{}, up.Usagef(`--scope is empty; for all deployments write --scope "*", or leave it out`)
	}
	return in.request(http.MethodPost, "/keys", "name", "scope"), nil
}
