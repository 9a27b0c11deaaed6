package cli

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/store"
)

var auditCommand = command{
	use:   "audit [--by NAME] [--operation KIND] [--record NAME] [--from DAY] [--to DAY]",
	short: "Shows who changed what, when and from where",
	long: `Shows the management operations on an account, newest first: who performed them,
when and from where. The last 1,000 of the last 90 days are kept. The list of the
default account also has the operations on the gateway itself, such as backups.`,
	example: `  caddy gateway audit
  caddy gateway audit --by anna --operation key
  caddy gateway audit --record laptop --from 2026-11-01`,
	account: true,
	flags: func(f *pflag.FlagSet) {
		f.String("by", "", "Only of this user or management token, by id or name")
		f.String("operation", "", "Only these operations, like key.revoke or key")
		f.String("record", "", "Only on this record, by id or name")
		f.String("from", "", "The first day in UTC, like 2026-11-01")
		f.String("to", "", "The last day")
	},
	run: operation(func(in *invocation) (request, error) {
		r := in.request(http.MethodGet, "/audit")
		for _, name := range []string{"by", "operation", "record", "from", "to"} {
			if in.Flags().Changed(name) {
				r = r.with(name, url.QueryEscape(in.text(name)))
			}
		}
		return r, nil
	}, printAudit),
}

func printAudit(in *invocation, list []store.Operation) {
	if len(list) == 0 {
		in.printf("No operations.\n")
		return
	}
	rows := [][]string{{"TIME", "BY", "OPERATION", "RECORD", "DETAILS", "FROM"}}
	for _, o := range list {
		by, record := o.By, o.Record
		if o.TokenName != "" {
			by += " (token " + o.TokenName + ")"
		}
		if o.Name != "" {
			record = o.Name
		}
		var details []string
		for _, name := range slices.Sorted(maps.Keys(o.Details)) {
			details = append(details, fmt.Sprintf("%s: %s", name, o.Details[name]))
		}
		rows = append(rows, []string{in.env.date(o.Time), by, o.Operation, record, strings.Join(details, "; "), o.From})
	}
	in.err = printTable(in.OutOrStdout(), rows)
}
