package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

const speedMetric = "postern_time_per_output_token_seconds_count{"

// TestScrape: an edge that has served requests of all kinds exposes all metrics and labels in the rules for
// Prometheus and the dashboard for Grafana.
func TestScrape(t *testing.T) {
	t.Parallel()
	o := inEtcd("a", start(t, 1).urls()...)
	o.Site = "queue_length 1"
	g := &gateway{Gateway: harness.Start(t, o), name: "a", up: upstream.Start(t)}
	g.Connector(t, "box", g.up.URL)
	g.Manage(t, http.MethodPut, "/deployments/m-a",
		map[string]any{"connector": "box", "model": "m", "max_concurrency": 1}, nil)
	serveAllKinds(t, g)

	exposed := map[string][]string{} // labels by metric
	label := regexp.MustCompile(`(\w+)="`)
	var metrics string
	harness.Poll(t, limit, "the metrics that come later than an answer", func(context.Context) error {
		metrics = g.Metrics(t)
		for _, late := range []string{
			"postern_tokens_total{", "postern_upstream_errors_total{", "postern_upstream_up{",
			speedMetric,
		} {
			if !strings.Contains(metrics, late) {
				return errors.New("there is no " + late)
			}
		}
		return nil
	})
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? `).FindAllStringSubmatch(metrics, -1) {
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			exposed[m[1]] = append(exposed[m[1]], l[1])
		}
		exposed[m[1]] = append(exposed[m[1]], "job", "instance") // added by Prometheus
	}
	expressions := queries(t)
	if len(expressions) < 45 {
		t.Errorf("only %d expressions", len(expressions))
	}
	for _, e := range expressions {
		checkExpression(t, e, exposed)
	}
}

// serveAllKinds sends requests to the edge that succeed, wait, fail and are refused.
func serveAllKinds(t *testing.T, g *gateway) {
	t.Helper()
	id, key := g.Key(t, "key", "*")
	client, chat := g.Client(t, key), harness.Chat("m-a", "")
	g.up.Handle("", upstream.SlowTokens(time.Hour, nil))
	running := client.Stream(t, harness.Chat("m-a", `,"stream":true`))
	g.up.WaitRunning(t, 1)
	answered := make(chan int)
	go func() { answered <- client.Post(t, chat).Status }()
	harness.Poll(t, limit, "a queued request", func(context.Context) error {
		if !strings.Contains(g.Metrics(t), `postern_queue_length{deployment="m-a"} 1`) {
			return errors.New("there is none")
		}
		return nil
	})
	if a := client.Post(t, chat); a.Status != http.StatusTooManyRequests {
		t.Errorf("a request for a full queue: status %d, %s", a.Status, a.Body)
	}
	g.up.Handle("", upstream.Echo)
	running.Close()
	if status := <-answered; status != http.StatusOK {
		t.Errorf("a queued request: status %d", status)
	}
	// The speed of tokens is unknown if writing them takes as long as making them.
	for pause := 2 * time.Millisecond; !strings.Contains(g.Metrics(t), speedMetric) && pause < time.Second; pause *= 4 {
		streamTen(t, g, client, pause)
	}
	g.up.Handle("", upstream.Answer(500, "application/json", `{}`))
	client.Post(t, chat)
	g.Client(t, "sk-svc-wrong").Post(t, chat)
	limits := map[string]int{"requests_per_minute": 1}
	g.Manage(t, http.MethodPatch, "/keys/"+id, map[string]any{"limits": limits}, nil)
	g.up.Handle("", upstream.Echo)
	client.Post(t, chat)
	if a := client.Post(t, chat); a.Status != http.StatusTooManyRequests {
		t.Errorf("a request beyond a limit: status %d, %s", a.Status, a.Body)
	}
	g.Revoke(t, id)
}

// streamTen sends a request whose answer has a pause between its ten tokens.
func streamTen(t *testing.T, g *gateway, client *harness.Client, pause time.Duration) {
	t.Helper()
	enough := make(chan struct{})
	g.up.Handle("", upstream.SlowTokens(pause, enough))
	stream := client.Stream(t, harness.Chat("m-a", `,"stream":true`))
	for range 10 {
		if event, err := stream.Next(); err != nil {
			t.Fatalf("a stream: %q, %v", event, err)
		}
	}
	close(enough)
	if text, err := stream.Rest(); err != nil || !strings.Contains(text, "[DONE]") {
		t.Errorf("a stream: %s, %v", text, err)
	}
}

// An expression is a query, with the texts that use its labels.
type expression struct{ query, texts string }

// queries returns the expressions of the rules and the dashboard.
func queries(t *testing.T) (all []expression) {
	t.Helper()
	read := func(path string) []byte {
		text, err := os.ReadFile(filepath.Join(harness.Root(t), path))
		must(t, err)
		return text
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Expr        string
				Annotations struct{ Summary string }
			}
		}
	}
	must(t, yaml.Unmarshal(read("packaging/prometheus/rules.yml"), &rules))
	for _, r := range rules.Groups[0].Rules {
		all = append(all, expression{r.Expr, strings.ReplaceAll(r.Annotations.Summary, "$labels.", "")})
	}
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct{ List []struct{ Definition string } }
	}
	must(t, json.Unmarshal(read("packaging/grafana/postern.json"), &dashboard))
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, expression{target.Expr, target.LegendFormat})
		}
	}
	return append(all, expression{query: "postern_requests_total{deployment=~\"\"}"}) // from the dashboard's variable
}

var (
	metricName = regexp.MustCompile(`\b(postern_[a-z_]+)(?:\{([^}]*)\})?`)
	selected   = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
	grouped    = regexp.MustCompile(`by \(([^)]*)\)`)
	named      = regexp.MustCompile(`\{\{ ?(\w+) ?\}\}`)
)

// checkExpression checks that the metrics of an expression exist, with their labels.
func checkExpression(t *testing.T, e expression, exposed map[string][]string) {
	t.Helper()
	var grouping, labels []string // labels of the expression, and of all of its metrics
	for _, m := range grouped.FindAllStringSubmatch(e.query, -1) {
		grouping = append(grouping, strings.Split(m[1], ", ")...)
	}
	for _, m := range metricName.FindAllStringSubmatch(grouped.ReplaceAllString(e.query, ""), -1) {
		has, ok := exposed[m[1]]
		if !ok {
			t.Errorf("%s: the edge has no metric %s", e.query, m[1])
		}
		for _, l := range selected.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(has, l[1]) {
				t.Errorf("%s: %s has no label %s", e.query, m[1], l[1])
			}
		}
		labels = append(labels, has...)
	}
	for _, l := range grouping {
		if !slices.Contains(labels, l) {
			t.Errorf("%s: no metric has the label %s", e.query, l)
		}
	}
	if len(grouping) > 0 {
		labels = grouping
	}
	for _, m := range named.FindAllStringSubmatch(e.texts, -1) {
		if labels != nil && !slices.Contains(labels, m[1]) {
			t.Errorf("%s: its text names the label %s", e.query, m[1])
		}
	}
}
