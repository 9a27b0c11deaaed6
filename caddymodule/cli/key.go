package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var keyCommands = command{
	use: "key", short: "Creates, changes, rotates, disables, revokes and lists API keys",
	commands: []command{{
		use: "create --name NAME [--scope SCOPE] [--expires TIME] [--allow-ip NETWORK …]", operation: "POST /keys",
		long: `Creates an API key and prints it. It is not stored and cannot be shown again.

` + newKeyHelp,
		example: `  caddy gateway key create --name laptop
  caddy gateway key create --name ci --scope "qwen*,llama3.2:3b" --expires 30d --json`,
		prepare: checkScope,
		print: show(func(in *invocation, key manage.CreatedKey) {
			in.printf(`Key %q created. It is shown only this once, so store it now:

  %s

  id       %s
  scope    %s
  expires  %s

Try it:

  curl %s/v1/models -H "Authorization: Bearer %s"
`, key.Name, key.Key, key.ID, key.Scope, in.env.end(key.ExpiresAt), in.url(), key.Key)
		}),
	}, {
		use: "setup CLIENT [--default-model MODEL] …", operation: "POST /setups", argument: "client",
		long: `Creates a code that sets up claude, codex, opencode, continue, cline or qwen, and
prints the command for the person's machine. There, the code is traded for a new API
key, which is written into the client's settings. It works once, within 15 minutes.

` + newKeyHelp,
		example: `  caddy gateway key setup claude --owner anna --default-model qwen3:8b
  caddy gateway key setup codex --owner anna --scope "qwen*" --expires 30d`,
		prepare: checkScope,
		print: show(func(in *invocation, s manage.CreatedSetup) {
			in.printf("The code is %s. It works once, and expires %s.\n\n", s.Code, in.env.until(s.ExpiresAt))
			if s.Commands.Shell != "" {
				in.printf("In a shell of Linux or macOS:\n\n  %s\n\n", s.Commands.Shell)
			}
			if s.Commands.PowerShell != "" {
				in.printf("In PowerShell:\n\n  %s\n\n", s.Commands.PowerShell)
			}
			in.printf("Where the connector is installed already:\n\n  %s\n", s.Commands.Connector)
			for _, hint := range s.Hints {
				in.printf("\n%s\n", hint)
			}
		}),
	}, {
		use: "list [--sort ORDER]", operation: "GET /keys",
		example: `  caddy gateway key list
  caddy gateway key list --sort used`,
		flags: func(f *pflag.FlagSet) { f.String("sort", "", "The order: "+keyOrders) },
		edit:  sortKeys,
		print: list[manage.Key]{
			columns: "ID, NAME, KEY, SCOPE, OWNER, LAST USED, LIMITS, EXPIRES, STATE", least: "ID, KEY, SCOPE",
			cells: cells[manage.Key]{
				"STATE":  keyStateAndPriority,
				"LIMITS": func(_ *invocation, k manage.Key) string { return limitList(k.Limits) },
			},
			empty: "No keys yet. Create one with `caddy gateway key create --name NAME`.",
		}.print,
	}, {
		use: "set NAME [--scope SCOPE] [--expires TIME] [--allow-ip NETWORK …]", operation: "PATCH /keys/{id}",
		long: `Changes an API key, given by name or id. What you leave out stays as it is. When
the command returns, running requests that the key no longer allows have been
stopped.

` + keyFlagsHelp,
		example: `  caddy gateway key set laptop --expires 30d
  caddy gateway key set laptop --expires never --allow-ip any
  caddy gateway key set laptop --rename desk --scope "qwen*" --allow-ip 10.0.0.0/8
  caddy gateway key set laptop --requests-per-minute 60 --tokens-per-day 2M`,
		prepare: checkScope,
		print: show(func(in *invocation, k manage.Key) {
			in.printf("Key %q is changed.\n\n", k.Name)
			printKey(in, k)
		}),
	}, {
		use: "people NAME [--since DAY]", operation: "GET /keys/{id}/people",
		long: `Shows the usage of the people behind an API key, given by name or id, which has
--user-header or --user-field. "others" are requests without a name, and the people
beyond a thousand on a day. Days are in UTC.`,
		example: `  caddy gateway key people webui
  caddy gateway key people webui --since 2026-11-01`,
		print: list[manage.PersonUsage]{
			columns: "PERSON, REQUESTS, ERRORS, INPUT, OUTPUT, LAST DAY", empty: "No requests of people in these days.",
		}.print,
	}, {
		use: "forget NAME --person PERSON", operation: "POST /keys/{id}/forget",
		long: `Deletes the usage of a person behind an API key, given by name or id, and the name
of the person in requests. Until tomorrow (UTC), further requests of this person count
for "others".`,
		example: `  caddy gateway key forget webui --person anna@example.com`,
		print: show(func(in *invocation, k manage.Key) {
			in.printf("Key %q (%s) has forgotten the person.\n", k.Name, k.ID)
		}),
	}, {
		use: "rotate NAME [--grace DURATION]", operation: "POST /keys/{id}/rotate",
		long: `Creates a new secret for an API key, given by name or id, and prints it. The
current secret stays valid for the grace period. At most two secrets are valid: a
secret that is still valid from an earlier rotation becomes invalid at once.`,
		example: `  caddy gateway key rotate laptop
  caddy gateway key rotate laptop --grace 0s`,
		print: show(printRotatedKey),
	}, {
		use: "disable NAME", operation: "POST /keys/{id}/disable",
		long: `Disables an API key, given by name or id. When the command returns, new requests
with the key are refused and its running requests have been stopped.`,
		example: `  caddy gateway key disable laptop`,
		print: show(func(in *invocation, k manage.Key) {
			in.printf("Key %q (%s) is disabled.\n", k.Name, k.ID)
		}),
	}, {
		use: "enable NAME", operation: "POST /keys/{id}/enable",
		example: `  caddy gateway key enable laptop`,
		print: show(func(in *invocation, k manage.Key) {
			in.printf("Key %q (%s) is enabled.\n", k.Name, k.ID)
			if k.State == store.KeyExpired {
				in.warnf("But it has expired. Extend it with `caddy gateway key set %s --expires 30d`.\n", k.ID)
			}
		}),
	}, {
		use: "revoke NAME", operation: "DELETE /keys/{id}",
		long: `Revokes an API key, given by name or id. When the command returns, new requests
with the key are refused and its running requests have been stopped. A revoked key
stays in the list, and its name is free for a new key.

You can revoke a key again. This changes nothing, but if several gateways share a
store, the command waits again until all of them have confirmed the revocation.`,
		example: `  caddy gateway key revoke laptop`,
		print: show(func(in *invocation, key manage.DeletedKey) {
			what := "is revoked"
			if key.Already {
				what = "was revoked already"
			}
			in.printf("Key %q (%s) %s.\n", key.Name, key.ID, what)
		}),
	}, {
		use: "remove NAME", operation: "DELETE /keys/{id}", short: "Removes an API key from the list",
		long: `Removes an API key, given by name or id, from the list. An active key is revoked
first. Revoked and expired keys are removed automatically after 90 days.`,
		example: `  caddy gateway key remove laptop`,
		prepare: func(_ *invocation, r *request) error {
			r.set("record", "remove")
			return nil
		},
		print: show(func(in *invocation, key manage.DeletedKey) {
			in.printf("Key %q (%s) is removed.\n", key.Name, key.ID)
		}),
	}},
}

const newKeyHelp = keyFlagsHelp + `

The account's defaults apply to what you leave out of scope, expiry, networks and
limits.`

const keyFlagsHelp = `The scope lists the deployments that the key may use: comma-separated names or
patterns. "*" matches any characters, "?" one character.

--expires takes a duration from now such as 30d or 12h, a time such as
2027-01-31T12:00:00Z, or "never".

--allow-ip takes a network such as 10.0.0.0/8, an address, or "any". Behind a
proxy, set trusted_proxies and trusted_proxies_strict in the Caddyfile, so that the
address is the client's.

` + limitsHelp

// checkScope refuses an empty scope: an unset variable of a script must not mean "all". It warns of what matches none.
func checkScope(in *invocation, _ *request) error {
	if in.Flags().Changed("scope") && in.text("scope") == "" {
		return up.Usagef(`--scope is empty; for all deployments write --scope "*", or leave it out`)
	}
	for pattern := range strings.SplitSeq(in.text("scope"), ",") {
		matched, r := []manage.Deployment{}, in.newRequest("GET /deployments")
		r.set("scope", pattern)
		if pattern != "" && in.do(r, &matched) == nil && len(matched) == 0 {
			in.warnf("Warning: no model matches %q of the scope now.\n", strings.TrimSpace(pattern))
		}
	}
	return nil
}

// keyOrders are the orders of the list of keys.
const keyOrders = "name, owner, used, expires"

// sortKeys sorts a list of keys: those used last first, those that expire soonest first.
func sortKeys(in *invocation, answer any) error {
	const far = 1 << 40 // a time in seconds
	text, ok := map[string]func(k manage.Key) string{
		"":      func(manage.Key) string { return "" },
		"name":  func(k manage.Key) string { return strings.ToLower(k.Name) },
		"owner": func(k manage.Key) string { return strings.ToLower(k.OwnerName) },
		"used":  func(k manage.Key) string { return fmt.Sprintf("%020d", far-cmp.Or(k.LastUsedAt, &time.Time{}).Unix()) },
		"expires": func(k manage.Key) string {
			return fmt.Sprintf("%020d", cmp.Or(k.ExpiresAt, new(time.Unix(far, 0))).Unix())
		},
	}[in.text("sort")]
	if !ok {
		return up.Usagef("--sort %.40q is not one of %s", in.text("sort"), keyOrders)
	}
	slices.SortStableFunc(answer.([]manage.Key), func(a, b manage.Key) int { return strings.Compare(text(a), text(b)) })
	return nil
}

// keyState returns the state of a key, and since when.
func keyState(in *invocation, k manage.Key) string {
	switch k.State {
	case store.KeyRevoked:
		return "revoked " + in.env.ago(k.RevokedAt)
	case store.KeyDisabled:
		return "disabled " + in.env.ago(k.DisabledAt)
	case store.KeyExpired:
		return "expired"
	case store.KeySuspended:
		if k.LeftGroup {
			return "suspended"
		}
		return "suspended " + in.env.ago(&k.SuspendedFrom)
	}
	return "active"
}

// keyStateAndPriority returns the state of a key, and its priority unless that is normal.
func keyStateAndPriority(in *invocation, k manage.Key) string {
	if k.Priority == "" {
		return keyState(in, k)
	}
	return keyState(in, k) + ", " + string(k.Priority) + " priority"
}

// networkList lists the networks that a key may be used from.
func networkList(networks []netip.Prefix) string {
	texts := make([]string, len(networks))
	for i, n := range networks {
		texts[i] = n.String()
	}
	return cmp.Or(strings.Join(texts, ", "), "any address")
}

// printKey prints the fields of a key that can be changed.
func printKey(in *invocation, k manage.Key) {
	in.printf(`  id       %s
  scope    %s
  expires  %s
  from     %s
  owner    %s
  group    %s
  default  %s
  note     %s
  limits   %s
  priority %s
  state    %s
`, k.ID, k.Scope, in.env.end(k.ExpiresAt), networkList(k.AllowedIPs), cmp.Or(k.OwnerName, "none"),
		cmp.Or(k.GroupName, k.Group, "those of the owner"), cmp.Or(k.DefaultModel, "none"), cmp.Or(k.Note, "none"),
		limitList(k.Limits),
		cmp.Or(k.Priority, store.PriorityNormal), keyState(in, k))
	if k.NamesPeople() {
		in.printf("  people   by %s; limits of each: %s\n", cmp.Or(k.UserHeader, "the body"), limitList(k.PersonLimits))
	}
	if k.State == store.KeySuspended {
		in.printf("\nThe key is suspended: %s.\n", k.Suspension())
	}
}

func printRotatedKey(in *invocation, key manage.CreatedKey) {
	in.printf("Key %q has a new secret. It is shown only this once, so store it now:\n\n  %s\n\n", key.Name, key.Key)
	if key.Previous == nil {
		in.printf("The old secret is invalid.\n")
	} else {
		in.printf("The old secret (%s) is valid until %s.\n", key.Previous.Shown, in.env.date(key.Previous.Until))
	}
	if key.Unconfirmed != nil {
		in.warnf("Warning: %s\n", key.Unconfirmed.Message)
	}
}
