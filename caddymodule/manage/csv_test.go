package manage_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
)

// table returns a file of the API, without its header, by the names of its columns.
func (g *gateway) table(path, name string) (rows []map[string]string) {
	g.t.Helper()
	w := g.do("GET", path, "")
	lines, err := csv.NewReader(w.Body).ReadAll()
	if err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/csv; charset=utf-8" ||
		w.Header().Get("Content-Disposition") != `attachment; filename="`+name+`"` {
		g.t.Fatalf("%d %v, %v", w.Code, w.Header(), err)
	}
	for _, line := range lines[1:] {
		row := make(map[string]string)
		for i, value := range line {
			row[lines[0][i]] = value
		}
		rows = append(rows, row)
	}
	return rows
}

// A file has all requests that the filters select, of all pages, and their names are not formulas.
func TestActivityCSV(t *testing.T) {
	g := newGateway(t)
	now := time.Now()
	const n = activity.MaxPage + 5
	for i := range n {
		g.activity.Record("default", activity.Request{
			ID: fmt.Sprintf("req_%d", i), Time: now.Add(-time.Duration(i) * time.Second), KeyID: "key_x", KeyName: "=1+1",
			Deployment: "m", Status: 200, DurationMillis: 1.5, Streamed: true,
		})
	}
	g.activity.Record("default", activity.Request{ID: "req_other", Time: now, KeyID: "key_y", Deployment: "other"})
	rows := g.table("/activity?format=csv&model=m&limit=3", "activity.csv")
	if len(rows) != n {
		t.Fatalf("%d rows", len(rows))
	}
	for i, row := range rows {
		if row["id"] != fmt.Sprintf("req_%d", i) || row["key_name"] != "'=1+1" || row["status"] != "200" ||
			row["duration_ms"] != "1.5" || row["streamed"] != "true" || row["ids"] != "" ||
			row["time"] != now.Add(-time.Duration(i)*time.Second).UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano) {
			t.Fatalf("row %d: %v", i, row)
		}
	}
	for _, query := range []string{"?format=xml", "?format=csv&status=bad"} {
		if w := g.do("GET", "/activity"+query, ""); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// The file of the audit log has what a search finds, with all details.
func TestAuditCSV(t *testing.T) {
	g := newGateway(t)
	for _, name := range []string{"laptop", "desk"} {
		want[map[string]any](g, 201, "POST", "/keys", `{"name":"`+name+`","scope":"qwen*"}`)
	}
	rows := g.table("/audit?format=csv&search=Created+LAPTOP", "audit.csv")
	if len(rows) != 1 || rows[0]["name"] != "laptop" || rows[0]["operation"] != "key.create" ||
		!strings.Contains(rows[0]["details"], `"scope":"qwen*"`) {
		t.Errorf("%v", rows)
	}
}
