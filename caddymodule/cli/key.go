package cli

import (
	"cmp"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var keyCommands = command{
	use: "key", short: "Creates, changes, rotates, disables, revokes and lists API keys",
	commands: []command{{
		use:   "create --name NAME [--scope SCOPE] [--expires TIME] [--allow-ip NETWORK …]",
		short: "Creates an API key and prints it once",
		long: `Creates an API key and prints it. It is not stored and cannot be shown again.

` + keyFlagsHelp + `

The account's defaults apply to what you leave out of scope, expiry, networks and
limits.`,
		example: `  caddy gateway key create --name laptop
  caddy gateway key create --name ci --scope "qwen*,llama3.2:3b" --expires 30d --json`,
		account: true, required: []string{"name"},
		flags: func(f *pflag.FlagSet) {
			f.String("name", "", "What the key is for (required)")
			keyFlags(f)
		},
		run: operation(func(in *invocation) (request, error) {
			return keyRequest(in, in.request(http.MethodPost, "/keys", "name"))
		}, func(in *invocation, key manage.CreatedKey) {
			in.printf(`Key %q created. It is shown only this once, so store it now:

  %s

  id       %s
  scope    %s
  expires  %s

Try it:

  curl %s/v1/models -H "Authorization: Bearer %s"
`, printable(key.Name), key.Key, key.ID, printable(key.Scope), in.env.end(key.ExpiresAt), in.url(), key.Key)
		}),
	}, list[manage.Key]{
		kind: "key", short: "Lists API keys",
		empty:  "Create one with `caddy gateway key create --name NAME`.",
		header: []string{"ID", "NAME", "KEY", "SCOPE", "OWNER", "LAST USED", "EXPIRES", "STATE"},
		row: func(in *invocation, k manage.Key) []string {
			return []string{k.ID, k.Name, k.Shown, k.Scope, k.OwnerName, in.env.ago(k.LastUsedAt), in.env.end(k.ExpiresAt),
				keyState(in, k)}
		},
	}.command(), {
		use: "set NAME [--scope SCOPE] [--expires TIME] [--allow-ip NETWORK …]", short: "Changes an API key",
		long: `Changes an API key, given by name or id. What you leave out stays as it is. When
the command returns, running requests that the key no longer allows have been
stopped.

` + keyFlagsHelp,
		example: `  caddy gateway key set laptop --expires 30d --allow-ip 10.0.0.0/8
  caddy gateway key set laptop --expires never --allow-ip any
  caddy gateway key set laptop --rename desk --scope "qwen*"
  caddy gateway key set laptop --requests-per-minute 60 --tokens-per-day 2M`,
		account: true,
		flags: func(f *pflag.FlagSet) {
			f.String("rename", "", "The new name of the key")
			keyFlags(f)
		},
		run: operation(func(in *invocation) (request, error) {
			r := in.request(http.MethodPatch, "/keys/{}")
			account := len(r.body)
			if in.Flags().Changed("rename") {
				r.body["name"] = in.text("rename")
			}
			r, err := keyRequest(in, r)
			if err == nil && len(r.body) == account {
				return r, up.Usagef("nothing to change is given; for example: caddy gateway key set %s --expires 30d", in.arg)
			}
			return r, err
		}, func(in *invocation, k manage.Key) {
			in.printf("Key %q is changed.\n\n", printable(k.Name))
			printKey(in, k)
		}),
	}, {
		use: "rotate NAME [--grace DURATION]", short: "Creates a new secret for an API key and prints it once",
		long: `Creates a new secret for an API key, given by name or id, and prints it. The
present one stays valid for the grace period. At most two are valid: one from a
rotation before that ends at once.`,
		example: `  caddy gateway key rotate laptop
  caddy gateway key rotate laptop --grace 0s`,
		account: true,
		flags: func(f *pflag.FlagSet) {
			f.String("grace", "24h", "How long the present secret stays valid, up to 30d")
		},
		run: operation(func(in *invocation) (request, error) {
			r := in.request(http.MethodPost, "/keys/{}/rotate")
			grace, err := caddy.ParseDuration(in.text("grace"))
			if err != nil || grace < 0 || grace > store.MaxGrace {
				return r, up.Usagef("--grace %q is not a duration of 0s to 30d, such as 24h", in.text("grace"))
			}
			r.body["grace"] = grace.String()
			return r, nil
		}, printRotatedKey),
	}, {
		use: "disable NAME", short: "Disables an API key until it is enabled",
		long: `Disables an API key, given by name or id. When the command returns, new requests
with the key are refused and its running requests have been stopped.`,
		example: `  caddy gateway key disable laptop`,
		account: true,
		run: operation(send(http.MethodPost, "/keys/{}/disable"), func(in *invocation, k manage.Key) {
			in.printf("Key %q (%s) is disabled.\n", printable(k.Name), k.ID)
		}),
	}, {
		use: "enable NAME", short: "Enables a disabled API key",
		example: `  caddy gateway key enable laptop`,
		account: true,
		run: operation(send(http.MethodPost, "/keys/{}/enable"), func(in *invocation, k manage.Key) {
			in.printf("Key %q (%s) is enabled.\n", printable(k.Name), k.ID)
			if k.State == store.KeyExpired {
				in.warnf("But it has expired. Extend it with `caddy gateway key set %s --expires 30d`.\n", k.ID)
			}
		}),
	}, {
		use: "revoke NAME", short: "Revokes an API key",
		long: `Revokes an API key, given by name or id. When the command returns, new requests
with the key are refused and its running requests have been stopped. A revoked key
stays in the list, and its name is free for a new one. It can be revoked again,
which changes nothing. With several gateways on one store, that waits once more
until all of them have confirmed it.`,
		example: `  caddy gateway key revoke laptop`,
		account: true,
		run: operation(send(http.MethodDelete, "/keys/{}"), func(in *invocation, key manage.DeletedKey) {
			what := "is revoked"
			if key.Already {
				what = "was revoked already"
			}
			in.printf("Key %q (%s) %s.\n", printable(key.Name), key.ID, what)
		}),
	}, {
		use: "remove NAME", short: "Removes an API key from the list",
		long: `Removes an API key, given by name or id, from the list. An active key is revoked
first. Revoked and expired keys are removed automatically after 90 days.`,
		example: `  caddy gateway key remove laptop`,
		account: true,
		run: operation(func(in *invocation) (request, error) {
			return in.request(http.MethodDelete, "/keys/{}").with("record", "remove"), nil
		}, func(in *invocation, key manage.DeletedKey) {
			in.printf("Key %q (%s) is removed.\n", printable(key.Name), key.ID)
		}),
	}},
}

const keyFlagsHelp = `The scope lists the deployments that the key may use: comma-separated names or
patterns. "*" matches any characters, "?" one character.

--expires takes a duration from now such as 30d or 12h, a time such as
2027-01-31T12:00:00Z, or "never".

--allow-ip takes a network such as 10.0.0.0/8, an address, or "any". Behind a
proxy, set trusted_proxies and trusted_proxies_strict in the Caddyfile, so that the
address is the client's.

` + limitsHelp

// keyFlags adds the flags for the fields of a key.
func keyFlags(f *pflag.FlagSet) {
	f.String("scope", "", `The deployments it may use (new keys: default "*", all of them)`)
	f.String("expires", "", "When it expires (new keys: default never)")
	f.StringSlice("allow-ip", nil, "A network that it may be used from (may be repeated; new keys: default any)")
	f.String("owner", "", `The user who is responsible for it, by name or id; "" for none`)
	f.String("note", "", "A note for people")
	usageLimitFlags(f, "", "")
}

// keyRequest adds the given flags of keyFlags to a request.
func keyRequest(in *invocation, r request) (request, error) {
	given := in.Flags().Changed
	if given("scope") && in.text("scope") == "" {
		// An unset variable of a script must not mean "all".
		return r, up.Usagef(`--scope is empty; for all deployments write --scope "*", or leave it out`)
	}
	for _, name := range []string{"scope", "owner", "note"} {
		if given(name) {
			r.body[name] = in.text(name)
		}
	}
	if given("allow-ip") {
		networks, err := networksOf(in, "allow-ip")
		if err != nil {
			return r, err
		}
		r.body["allowed_ips"] = networks
	}
	if given("expires") {
		at, err := in.expiry(in.text("expires"))
		if err != nil {
			return r, err
		}
		r.body["expires_at"] = at
	}
	limits, err := usageLimits(in, "")
	if len(limits) > 0 {
		r.body["limits"] = limits
	}
	return r, err
}

// networksOf returns the networks of a flag; "any" is none.
func networksOf(in *invocation, flag string) ([]string, error) {
	networks, _ := in.Flags().GetStringSlice(flag)
	if len(networks) == 1 && networks[0] == "any" {
		return []string{}, nil
	}
	if len(networks) == 0 {
		return nil, up.Usagef("--%s is empty; give networks such as 10.0.0.0/8, or any", flag)
	}
	if _, err := store.ParseNetworks(networks); err != nil {
		return nil, up.Usagef("--%s must be networks such as 10.0.0.0/8, or any: %w", flag, err)
	}
	return networks, nil
}

// expiry returns the time of --expires for a request; nil is never.
func (in *invocation) expiry(text string) (any, error) {
	if text == "never" {
		return nil, nil
	}
	if d, err := caddy.ParseDuration(text); err == nil && d > 0 {
		return in.env.now().UTC().Add(d).Format(time.RFC3339), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC().Format(time.RFC3339), nil
	}
	return nil, up.Usagef("--expires %q is neither a duration such as 30d, nor a time such as 2027-01-31T12:00:00Z, nor "+
		"never", text)
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
	}
	return "active"
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
	in.printf("  id       %s\n  scope    %s\n  expires  %s\n  from     %s\n  owner    %s\n  note     %s\n  limits   "+
		"%s\n  state    %s\n",
		k.ID, printable(k.Scope), in.env.end(k.ExpiresAt), networkList(k.AllowedIPs), cmp.Or(printable(k.OwnerName), "none"),
		cmp.Or(printable(k.Note), "none"), limitList(k.Limits), keyState(in, k))
}

func printRotatedKey(in *invocation, key manage.CreatedKey) {
	in.printf("Key %q has a new secret. It is shown only this once, so store it now:\n\n  %s\n\n",
		printable(key.Name), key.Key)
	if key.Previous == nil {
		in.printf("The old secret is invalid.\n")
	} else {
		in.printf("The old secret (%s) is valid until %s.\n", key.Previous.Shown, in.env.date(key.Previous.Until))
	}
	if key.Unconfirmed != nil {
		in.warnf("Warning: %s\n", printable(key.Unconfirmed.Message))
	}
}
