package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// The alerts that the documents offer use metrics, labels and states that exist.
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
	file := readYAML[ruleFile](t, "docs/alerts.yaml")[0]
	page, err := os.ReadFile(filepath.Join(harness.Root(t), "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(postern_\\w+)` \\|.*$").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[0]
	}
	metric := regexp.MustCompile(`postern_\w+`)
	grouping := regexp.MustCompile(`by \(([^)]*)\)|\{\{ \$labels\.(\w+) \}\}|\{(\w+)[=!]`)
	value := regexp.MustCompile(`state[=!]~?"([^"]*)"`)
	for _, rule := range file.Groups[0].Rules {
		if rule.Alert == "" || rule.Annotations.Summary == "" || rule.Annotations.Fix == "" {
			t.Errorf("an alert without name, summary or fix: %+v", rule)
		}
		row := ""
		for _, name := range metric.FindAllString(rule.Expr, -1) {
			found := rows[strings.TrimSuffix(name, "_bucket")]
			if found == "" {
				t.Errorf("%s: there is no metric %s", rule.Alert, name)
			}
			row += found
		}
		if row == "" { // PosternDown
			continue
		}
		for _, m := range grouping.FindAllStringSubmatch(rule.Expr+rule.Annotations.Summary, -1) {
			for label := range strings.SplitSeq(m[1]+m[2]+m[3], ", ") {
				if label != "le" && !strings.Contains(row, "`"+label+"`") {
					t.Errorf("%s: its metrics have no label %s", rule.Alert, label)
				}
			}
		}
		for _, m := range value.FindAllStringSubmatch(rule.Expr, -1) {
			for state := range strings.SplitSeq(m[1], "|") {
				if !strings.Contains(row, "`"+state+"`") {
					t.Errorf("%s: there is no state %s", rule.Alert, state)
				}
			}
		}
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 8 || len(rows) < 15 {
		t.Errorf("%d groups, %d metrics", len(file.Groups), len(rows))
	}
}
