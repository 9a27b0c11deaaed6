package tests

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// The rules for Prometheus have a name, a summary and a fix, and the values of labels that they and
// the dashboard select are documented. A test of tests/cluster compares their names with a scrape.
func TestAlerts(t *testing.T) {
	t.Parallel()
	type ruleFile struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct{ Summary, Fix string }
			}
		}
	}
	documented := documentedMetrics(t)
	file := readYAML[ruleFile](t, "packaging/prometheus/rules.yml")[0]
	for _, rule := range file.Groups[0].Rules {
		if rule.Alert == "" || rule.Annotations.Summary == "" || rule.Annotations.Fix == "" {
			t.Errorf("an alert without name, summary or fix: %+v", rule)
		}
		checkSelectors(t, rule.Expr, documented)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 14 || len(documented) < 30 {
		t.Errorf("%d groups, %d rules, %d metrics", len(file.Groups), len(file.Groups[0].Rules), len(documented))
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	text := read(t, filepath.Join(harness.Root(t), "packaging/grafana/postern.json"))
	type box struct{ X, Y, W, H int }
	var dashboard struct {
		UID    string
		Panels []struct {
			ID         int
			Title      string
			Type       string
			GridPos    box
			Datasource struct{ UID string }
			Targets    []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || dashboard.UID == "" || len(dashboard.Panels) < 30 {
		t.Fatalf("the dashboard has %d panels, %v", len(dashboard.Panels), err)
	}
	documented := documentedMetrics(t)
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && p.Datasource.UID != "${datasource}" || (len(p.Targets) == 0) != (p.Type == "row") ||
			ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: source %q, %d queries", p.ID, p.Title, p.Datasource.UID, len(p.Targets))
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if taken[[2]int{x, y}] != "" || x >= 24 {
					t.Fatalf("%q is on %q, or wider than the page", p.Title, taken[[2]int{x, y}])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			checkSelectors(t, target.Expr, documented)
		}
	}
}

// documentedMetrics returns the rows of docs/metrics.md by the names of metrics.
func documentedMetrics(t *testing.T) map[string]string {
	t.Helper()
	page := read(t, filepath.Join(harness.Root(t), "docs/metrics.md"))
	rows := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(postern_\\w+)` \\|.*$")
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[0]
	}
	return rows
}

var (
	selector = regexp.MustCompile(`\b(postern_\w+?)(?:_bucket|_count|_sum)?\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)(?:=|!=|=~|!~)"([^"]*)"`)
)

// checkSelectors checks the metrics of an expression, and the values of their labels.
func checkSelectors(t *testing.T, expr string, documented map[string]string) {
	t.Helper()
	for _, s := range selector.FindAllStringSubmatch(regexp.MustCompile(`by \([^)]*\)`).ReplaceAllString(expr, ""), -1) {
		row := documented[s[1]]
		if row == "" {
			t.Errorf("%s: there is no metric %s", expr, s[1])
		}
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if strings.HasPrefix(m[2], "$") { // a variable
				continue
			}
			for value := range strings.SplitSeq(m[2], "|") {
				if value != "" && !strings.Contains(row, "`"+value+"`") {
					t.Errorf("%s: %s of %s has no value %s", expr, m[1], s[1], value)
				}
			}
		}
	}
}
