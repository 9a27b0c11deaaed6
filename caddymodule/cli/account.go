package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

var accountCommands = command{
	use: "account", short: "Adds, changes, lists and removes accounts",
	long: `Adds, changes, lists and removes accounts. Each user, key, connector and deployment
belongs to one account and is not visible in others. Each account has limits
for their numbers.`,
	commands: []command{{
		use: "add ID [--max-… N]", operation: "POST /accounts", argument: "id",
		long: `Adds an account. Its id consists of a-z, 0-9 and "-".

` + limitsHelp,
		example: `  caddy gateway account add research
  caddy gateway account add ci --max-keys 5000
  caddy gateway user add anna --account research`,
		print: show(func(in *invocation, a store.Account) {
			in.printf("Account %q is added. Add its first user with `caddy gateway user add NAME --account %s`.\n", a.ID, a.ID)
		}),
	}, {
		use: "set ID [--max-… N] [--key-… VALUE]", operation: "PATCH /accounts/{id}",
		long: `Changes the limits of an account, and what new keys get if they are created
without a scope, an expiry, networks or limits. What you leave out stays as it is.

The limits --max-keys, --max-connectors, --max-deployments, --max-users and
--max-tokens are for the records of the account; 0 resets one to its default.
Records that exceed a new limit stay. The flags --key-… are for new keys. The other
limits are for what all keys of the account use together.

With --groups-only, keys that count for no group may be used for nothing. Use
--groups-only=false to undo that.

` + limitsHelp,
		example: `  caddy gateway account set default --max-keys 5000
  caddy gateway account set research --max-connectors 500 --max-deployments 0
  caddy gateway account set research --tokens-per-month 50M --key-concurrency 4
  caddy gateway account set research --key-expires 90d --key-allow-ip 10.0.0.0/8`,
		print: show(func(in *invocation, a store.Account) {
			in.printf("Account %q may have:\n\n", a.ID)
			for _, name := range store.RecordLimitNames() {
				in.printf("  %-12s %6d\n", strings.TrimPrefix(name, "max_"), *a.Limits.Field(name))
			}
			in.printf("\nAll its keys together may use: %s\n", limitList(a.Limits.UsageLimits))
			if a.GroupsOnly {
				in.printf("Keys that count for no group may be used for nothing.\n")
			}
			printKeyDefaults(in, a.KeyDefaults)
		}),
	}, {
		use: "list", operation: "GET /accounts", example: "  caddy gateway account list",
		print: list[store.Account]{columns: "ID, CREATED", empty: "No accounts."}.print,
	}, {
		use: "remove ID", operation: "DELETE /accounts/{id}",
		example: `  caddy gateway account remove research`,
		print: show(func(in *invocation, a store.Account) {
			in.printf("Account %q is removed.\n", a.ID)
		}),
	}},
}

// printKeyDefaults prints what new keys get, if something was set.
func printKeyDefaults(in *invocation, d store.KeyDefaults) {
	if d.Scope == "" && d.ExpiresDays == 0 && len(d.AllowedIPs) == 0 && d.Limits == (limits.UsageLimits{}) {
		return
	}
	expires := "never"
	if d.ExpiresDays > 0 {
		expires = fmt.Sprintf("after %d days", d.ExpiresDays)
	}
	in.printf(`
New keys get:

  scope    %s
  expires  %s
  from     %s
  limits   %s
`, cmp.Or(d.Scope, "*"), expires, networkList(d.AllowedIPs), limitList(d.Limits))
}

const limitsHelp = `Limits are whole numbers such as 60, 500k or 2M; 0 is no limit. Days and months are
in UTC. A limit that changes applies from the next request on.`

// limitList lists limits for people.
func limitList(l limits.UsageLimits) string {
	var texts []string
	for _, name := range limits.Names() {
		if n := *l.Field(name); n > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(name, "_", " ")))
		}
	}
	return cmp.Or(strings.Join(texts, ", "), "none")
}
