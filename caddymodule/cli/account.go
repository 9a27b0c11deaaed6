package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/limits"
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
		use: "set ID [--max-… N] [--key-… VALUE]", short: "Changes an account's limits, and what new keys get",
		long: `Changes the limits of an account, and what new keys get if they are created
without a scope, an expiry, networks or limits. What you leave out stays as it is.

The limits --max-keys to --max-tokens are for what the account has. 0 resets one to
its default. Existing records beyond a new limit stay. The others are for what all
its keys use together. ` + limitsHelp,
		example: `  caddy gateway account set default --max-keys 5000
  caddy gateway account set research --max-connectors 500 --max-deployments 0
  caddy gateway account set research --tokens-per-month 50M --key-concurrency 4
  caddy gateway account set research --key-expires 90d --key-allow-ip 10.0.0.0/8`,
		flags: func(f *pflag.FlagSet) {
			limitFlags(f)
			usageLimitFlags(f, "", ", of all keys")
			usageLimitFlags(f, "key-", ", of new keys")
			f.String("key-scope", "", `The deployments that new keys may use (default "*", all of them)`)
			f.String("key-expires", "", "When new keys expire: days such as 90d, or never (default never)")
			f.StringSlice("key-allow-ip", nil, "A network that new keys may be used from (may be repeated; default any)")
		},
		run: operation(func(in *invocation) (request, error) {
			r, err := keyDefaultsRequest(in, limitRequest(in, http.MethodPatch, "/accounts/{}"))
			if err == nil {
				err = addUsageLimits(in, r)
			}
			if err == nil && len(r.body) == 0 {
				return r, up.Usagef("nothing to change is given; for example: caddy gateway account set %s --max-keys 5000", in.arg)
			}
			return r, err
		}, func(in *invocation, a store.Account) {
			in.printf("Account %q may have:\n\n", a.ID)
			for _, name := range store.RecordLimitNames() {
				in.printf("  %-12s %6d\n", strings.TrimPrefix(name, "max_"), *a.Limits.Field(name))
			}
			in.printf("\nAll its keys together may use: %s\n", limitList(a.Limits.UsageLimits))
			printKeyDefaults(in, a.KeyDefaults)
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
	for _, name := range store.RecordLimitNames() {
		f.Int(limitFlag(name), 0, fmt.Sprintf("How many %s it may have (default %d)", strings.TrimPrefix(name, "max_"),
			*defaults.Field(name)))
	}
}

// limitRequest returns a request with the given limits.
func limitRequest(in *invocation, method, path string) request {
	r := in.request(method, path)
	for _, name := range store.RecordLimitNames() {
		if in.Flags().Changed(limitFlag(name)) {
			r.body[name], _ = in.Flags().GetInt(limitFlag(name))
		}
	}
	return r
}

// addUsageLimits adds the given limits of usage, and those of new keys.
func addUsageLimits(in *invocation, r request) error {
	limits, err := usageLimits(in, "")
	if err != nil {
		return err
	}
	for name, n := range limits {
		r.body[name] = n
	}
	if limits, err = usageLimits(in, "key-"); len(limits) > 0 {
		r.body["key_limits"] = limits
	}
	return err
}

// keyDefaultsRequest adds the given defaults of new keys.
func keyDefaultsRequest(in *invocation, r request) (request, error) {
	given := in.Flags().Changed
	if given("key-scope") {
		r.body["key_scope"] = in.text("key-scope")
	}
	if given("key-expires") {
		const day = 24 * time.Hour
		text, days := in.text("key-expires"), 0
		if text != "never" {
			d, err := caddy.ParseDuration(text)
			if err != nil || d < day || d%day != 0 {
				return r, up.Usagef("--key-expires %q is neither whole days such as 90d, nor never", text)
			}
			days = int(d / day)
		}
		r.body["key_expires_days"] = days
	}
	if given("key-allow-ip") {
		networks, err := networksOf(in, "key-allow-ip")
		if err != nil {
			return r, err
		}
		r.body["key_allowed_ips"] = networks
	}
	return r, nil
}

// printKeyDefaults prints what new keys get, unless nothing was set.
func printKeyDefaults(in *invocation, d store.KeyDefaults) {
	if d.Scope == "" && d.ExpiresDays == 0 && len(d.AllowedIPs) == 0 && d.Limits == (limits.UsageLimits{}) {
		return
	}
	expires := "never"
	if d.ExpiresDays > 0 {
		expires = fmt.Sprintf("after %d days", d.ExpiresDays)
	}
	in.printf("\nNew keys get:\n\n  scope    %s\n  expires  %s\n  from     %s\n  limits   %s\n", cmp.Or(d.Scope, "*"),
		expires, networkList(d.AllowedIPs), limitList(d.Limits))
}

// limitFlag returns the flag of a limit, such as max-keys.
func limitFlag(name string) string { return strings.ReplaceAll(name, "_", "-") }
