package console

import (
	"context"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// auditTab lists who did what, when and from where.
var auditTab = &tab{path: "audit", name: "audit", title: "Audit log", data: auditData}

type auditPage struct {
	List listing[manage.AuditEntry]
	CSV  string // URL of the same operations
}

var auditColumns = columns[manage.AuditEntry]{
	name: "audit",
	text: manage.AuditEntry.SearchText,
	filters: []filter[manage.AuditEntry]{
		{"by", "Who", func(e manage.AuditEntry) []string { return []string{e.By} }},
		{"operation", "What", func(e manage.AuditEntry) []string {
			kind, _, _ := strings.Cut(e.Kind, ".")
			return []string{kind, e.Kind}
		}},
	},
}

func auditData(v *visit) any {
	columns, days := auditColumns, manage.Audit{From: v.r.FormValue("from"), To: v.r.FormValue("to")}
	columns.selects = []selection{{"from", "From", days.From, nil}, {"to", "To", days.To, nil}}
	entries := load(v, func(ctx context.Context) ([]manage.AuditEntry, error) { return v.Manage.Audit(ctx, days) })
	p := &auditPage{list(v, columns, entries), csvURL("audit", v.r.URL.Query())}
	for i := range p.List.Items {
		p.List.Items[i].Time = p.List.Items[i].Time.In(v.zone())
	}
	return p
}
