package cli

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/store"
)

var auditCommand = command{
	use: "audit [--by NAME] [--operation KIND] [--record NAME] [--from DAY] [--to DAY]", operation: "GET /audit",
	long: `Shows the management operations on an account, newest first: who performed them,
when and from where. The last 1,000 of the last 90 days are kept. The list of the
default account also has the operations on the gateway itself, such as backups.`,
	example: `  caddy gateway audit
  caddy gateway audit --by anna --operation key
  caddy gateway audit --record laptop --from 2026-11-01`,
	print: list[store.Operation]{
		columns: "TIME, BY, OPERATION, RECORD, DETAILS, FROM",
		cells: cells[store.Operation]{
			"BY": func(_ *invocation, o store.Operation) string {
				if o.TokenName == "" {
					return o.By
				}
				return o.By + " (token " + o.TokenName + ")"
			},
			"RECORD": func(_ *invocation, o store.Operation) string { return cmp.Or(o.Name, o.Record) },
			"DETAILS": func(_ *invocation, o store.Operation) string {
				var details []string
				for _, name := range slices.Sorted(maps.Keys(o.Details)) {
					details = append(details, name+": "+o.Details[name])
				}
				return strings.Join(details, "; ")
			},
		},
		empty: "No operations.",
	}.print,
}
