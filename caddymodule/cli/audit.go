package cli

import (
	"github.com/postern-dev/postern/caddymodule/manage"
)

var auditCommand = command{
	use: "audit [--by NAME] [--operation KIND] [--record NAME] [--from DAY] [--to DAY]", operation: "GET /audit",
	long: `Shows the management operations on an account, newest first: the last 1,000 of the
last 90 days. --json has the ids and all details. The list of the default account also
has the operations on the gateway itself, such as backups.`,
	example: `  caddy gateway audit
  caddy gateway audit --by anna --operation key
  caddy gateway audit --record laptop --from 2026-11-01`,
	print: func(in *invocation, answer any) {
		list[manage.AuditEntry]{
			columns: in.env.timeTitle() + ", WHAT, FROM", least: "FROM",
			cells: cells[manage.AuditEntry]{
				in.env.timeTitle(): func(in *invocation, e manage.AuditEntry) string { return in.env.moment(e.Time) },
			},
			empty: "No operations.",
		}.print(in, answer)
	},
}
