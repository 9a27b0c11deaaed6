package console

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// auditTab lists who did what, when and from where.
var auditTab = &tab{path: "audit", name: "audit", title: "Audit log", data: auditData}

type auditPage struct {
	List       listing[manage.AuditEntry]
	Chosen     manage.Audit // as submitted
	People     []string     // to choose from
	Operations []string     // kinds to choose from
	Filtered   bool
}

func auditData(v *visit) any {
	query := v.r.URL.Query()
	p := &auditPage{Chosen: manage.Audit{
		By: query.Get("by"), Operation: query.Get("operation"), From: query.Get("from"), To: query.Get("to"),
	}}
	people, operations := map[string]bool{}, map[string]bool{}
	entries := func(a manage.Audit) []manage.AuditEntry {
		return load(v, func(ctx context.Context) ([]manage.AuditEntry, error) { return v.Manage.Audit(ctx, a) })
	}
	for _, e := range entries(manage.Audit{}) {
		kind, _, _ := strings.Cut(e.Kind, ".")
		people[e.By], operations[kind] = true, true
	}
	p.People, p.Operations = slices.Sorted(maps.Keys(people)), slices.Sorted(maps.Keys(operations))
	p.List = list(v, columns[manage.AuditEntry]{
		name: "audit", kept: []string{"by", "operation", "from", "to"},
		text: func(e manage.AuditEntry) string {
			return strings.Join([]string{e.Record, e.Text, e.From, e.Kind}, "\n")
		},
	}, entries(p.Chosen))
	p.Filtered = p.Chosen != (manage.Audit{}) || p.List.Query != ""
	return p
}
