package cli

import (
	"cmp"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var groupCommands = command{
	use: "group", short: "Creates, changes, removes and lists groups, which bound the keys of their members",
	commands: []command{{
		use: "create --name NAME [--member USER …] [--scope SCOPE] [--claim VALUE]", operation: "POST /groups",
		long: `Creates a group. Keys of its members, and keys that are given to it, may be used for
the deployments of its scope, within its limits and up to its largest priority. A key
of a user in several groups may be used for what one of them allows, and the limits of
each hold.

` + groupHelp,
		example: `  caddy gateway group create --name research --member anna --member bert
  caddy gateway group create --name ml --scope "qwen*" --tokens-per-day 5M --claim ml-team`,
		prepare: checkScope,
		print: show(func(in *invocation, g manage.Group) {
			in.printf("Group %q is created.\n\n", g.Name)
			printGroup(in, g)
		}),
	}, {
		use: "list", operation: "GET /groups", example: "  caddy gateway group list",
		print: list[manage.Group]{
			columns: "ID, NAME, MEMBERS, SCOPE, KEYS, TODAY, MONTH, LIMITS", least: "ID, SCOPE",
			cells: cells[manage.Group]{
				"MEMBERS": func(_ *invocation, g manage.Group) string { return strings.Join(g.MemberNames, ", ") },
				"LIMITS":  func(_ *invocation, g manage.Group) string { return limitList(g.Limits) },
			},
			empty: "No groups yet. Create one with `caddy gateway group create --name NAME`.",
		}.print,
	}, {
		use: "show NAME", operation: "GET /groups/{id}", example: "  caddy gateway group show research",
		print: show(func(in *invocation, g manage.Group) {
			in.printf("Group %q\n\n", g.Name)
			printGroup(in, g)
			in.printf("  keys     %d\n  today    %d tokens\n  month    %d tokens\n", g.Keys, g.TokensToday, g.TokensMonth)
		}),
	}, {
		use: "set NAME [--member USER …] [--scope SCOPE] …", operation: "PATCH /groups/{id}",
		long: `Changes a group, given by name or id. What you leave out stays as it is. When the
command returns, running requests that their keys no longer allow have been stopped.

` + groupHelp,
		example: `  caddy gateway group set research --member anna --member carla
  caddy gateway group set research --tokens-per-month 50M --max-priority normal`,
		prepare: checkScope,
		print: show(func(in *invocation, g manage.Group) {
			in.printf("Group %q is changed.\n\n", g.Name)
			printGroup(in, g)
		}),
	}, {
		use: "remove NAME", operation: "DELETE /groups/{id}",
		long: `Removes a group, given by name or id. Keys that were given to it are suspended. Other
keys of its members are bound by their other groups. Without another group, they are
bound by the account alone, unless the account has --groups-only.`,
		example: `  caddy gateway group remove research`,
		print: show(func(in *invocation, g manage.Group) {
			in.printf("Group %q (%s) is removed.\n", g.Name, g.ID)
		}),
	}},
}

const groupHelp = `--member sets the members by hand: separate them with commas, or repeat it; "" is
none. With --claim, users are members while their issuer lists this value in the
claim that its option groups_claim names, as of their last sign-in.

` + limitsHelp

// printGroup prints the fields of a group that can be changed.
func printGroup(in *invocation, g manage.Group) {
	in.printf(`  id       %s
  members  %s
  scope    %s
  limits   %s
  priority up to %s
  claim    %s
`, g.ID, cmp.Or(strings.Join(g.MemberNames, ", "), "none"), g.Scope, limitList(g.Limits),
		cmp.Or(g.MaxPriority, store.PriorityHigh), cmp.Or(g.Claim, "none"))
}
