package cli

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/store"
)

var accountCommands = command{
	use: "account", short: "Adds, changes, lists and removes accounts",
	long: `Adds, changes, lists and removes accounts. Each user, key, connector and deployment
belongs to one account and is not visible in others. Each account has limits
for their numbers.`,
	commands: []command{{
		use: "add ID [--max-… N]", short: "Adds an account",
		long: `Adds an account. Its id consists of a-z, 0-9 and "-".`,
		example: `  caddy gateway account add research
  caddy gateway account add ci --max-keys 5000
  caddy gateway user add anna --account research`,
		flags: limitFlags,
		run: operation(func(in *invocation) (request, error) {
			r := limitRequest(in, http.MethodPost, "/accounts")
			r.body["id"] = in.arg
			return r, nil
		}, func(in *invocation, a store.Account) {
			in.printf("Account %q is added. Add its first user with `caddy gateway user add NAME --account %s`.\n", a.ID, a.ID)
		}),
	}, {
		use: "set ID --max-… N", short: "Changes the limits of an account",
		long: `Changes the limits of an account. Limits that are not given stay; 0 is the
default. Existing records beyond a new limit stay.`,
		example: `  caddy gateway account set default --max-keys 5000
  caddy gateway account set research --max-connectors 500 --max-deployments 0`,
		flags: limitFlags,
		run: operation(func(in *invocation) (request, error) {
			r := limitRequest(in, http.MethodPatch, "/accounts/{}")
			if len(r.body) == 0 {
				return r, up.Usagef("no limit is given; for example: caddy gateway account set %s --max-keys 5000", in.arg)
			}
			return r, nil
		}, func(in *invocation, a store.Account) {
			in.printf("Account %q may have:\n\n", a.ID)
			for _, name := range store.LimitNames() {
				in.printf("  %-12s %6d\n", strings.TrimPrefix(name, "max_"), *a.Limits.Field(name))
			}
		}),
	}, list[store.Account]{
		kind: "account", short: "Lists accounts", all: true,
		header: []string{"ID", "CREATED"},
		row:    func(in *invocation, a store.Account) []string { return []string{a.ID, in.env.date(a.CreatedAt)} },
	}.command(), {
		use: "remove ID", short: "Removes an empty account",
		example: `  caddy gateway account remove research`,
		run: operation(send(http.MethodDelete, "/accounts/{}"), func(in *invocation, a store.Account) {
			in.printf("Account %q is removed.\n", a.ID)
		}),
	}},
}

// limitFlags adds a flag for each limit of an account.
func limitFlags(f *pflag.FlagSet) {
	defaults := store.Limits{}.Effective()
	for _, name := range store.LimitNames() {
		f.Int(limitFlag(name), 0, fmt.Sprintf("How many %s it may have (default %d)", strings.TrimPrefix(name, "max_"), *defaults.Field(name)))
	}
}

// limitRequest returns a request with the given limits.
func limitRequest(in *invocation, method, path string) request {
	r := in.request(method, path)
	for _, name := range store.LimitNames() {
		if in.Flags().Changed(limitFlag(name)) {
			r.body[name], _ = in.Flags().GetInt(limitFlag(name))
		}
	}
	return r
}

// limitFlag returns the flag of a limit, such as max-keys.
func limitFlag(name string) string { return strings.ReplaceAll(name, "_", "-") }
