package console

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// auditTab lists who did what, when and from where.
var auditTab = &tab{path: "audit", name: "audit", title: "Audit list", data: auditData}

type auditPage struct {
	List       listing[auditRow]
	Chosen     manage.Audit // as submitted
	People     []string     // to choose from
	Operations []string     // kinds to choose from
	Filtered   bool
}

type auditRow struct{ store.Operation }

// Values returns the details, in the order of their names.
func (r auditRow) Values() string {
	var values []string
	for _, name := range slices.Sorted(maps.Keys(r.Details)) {
		values = append(values, name+": "+r.Details[name])
	}
	return strings.Join(values, "; ")
}

func auditData(v *visit) any {
	query := v.r.URL.Query()
	p := &auditPage{Chosen: manage.Audit{
		By: query.Get("by"), Operation: query.Get("operation"), From: query.Get("from"), To: query.Get("to"),
	}}
	people, operations := map[string]bool{}, map[string]bool{}
	for _, o := range load(v, func(ctx context.Context) ([]store.Operation, error) {
		return v.Manage.Audit(ctx, manage.Audit{})
	}) {
		kind, _, _ := strings.Cut(o.Operation, ".")
		people[o.By], operations[kind] = true, true
	}
	p.People, p.Operations = slices.Sorted(maps.Keys(people)), slices.Sorted(maps.Keys(operations))
	var rows []auditRow
	for _, o := range load(v, func(ctx context.Context) ([]store.Operation, error) {
		return v.Manage.Audit(ctx, p.Chosen)
	}) {
		rows = append(rows, auditRow{o})
	}
	p.List = list(v, "audit", rows, func(r auditRow) string {
		return strings.Join([]string{r.Record, r.Name, r.From, r.Operation.Operation}, "\n")
	}, "by", "operation", "from", "to")
	p.Filtered = p.Chosen != (manage.Audit{}) || p.List.Query != ""
	return p
}
