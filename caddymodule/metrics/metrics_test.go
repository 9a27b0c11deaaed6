package metrics

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/serve"
)

func TestTokenMetrics(t *testing.T) {
	const model = "counted-in-a-test"
	defer DropDeployment(model)
	ex := &serve.Exchange{Start: time.Now().Add(-3 * time.Second)}
	ex.Deployment = model
	ex.Operation = dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}
	ex.Outcome = activity.Failed
	ex.Usage = dialect.Usage{PromptTokens: 100, CachedTokens: 60, CompletionTokens: 21, ReasoningTokens: 5}
	e := serve.Ending{
		Status: 200, Logged: 502, Class: dialect.ClassUpstream, Kind: dialect.KindUnreachable,
		First: ex.Start.Add(time.Second), FirstToken: 500 * time.Millisecond, TokensPerSecond: 5,
	}
	Observer{}.Ended(ex, e)
	Observer{}.Counted(ex, ex.Usage)
	Observer{}.Counted(ex, dialect.Usage{PromptTokens: 7, Estimated: true})
	Observer{}.Counted(ex, dialect.Usage{})
	Observer{}.Queued(ex, 2*time.Second)
	for series, want := range map[string]string{
		`postern_requests_total code=200 deployment=counted-in-a-test dialect=messages outcome=failed`: "1", // code as sent
		`postern_requests_total code=502 deployment=counted-in-a-test dialect=messages outcome=failed`: "",
		`postern_queue_wait_seconds deployment=counted-in-a-test`:                                      "1 of 2",
		`postern_upstream_errors_total class=upstream_unreachable deployment=counted-in-a-test`:        "1",
		`postern_tokens_total deployment=counted-in-a-test source=upstream type=input`:                 "100",
		`postern_tokens_total deployment=counted-in-a-test source=upstream type=cached_input`:          "60",
		`postern_tokens_total deployment=counted-in-a-test source=upstream type=output`:                "21",
		`postern_tokens_total deployment=counted-in-a-test source=upstream type=reasoning`:             "5",
		`postern_tokens_total deployment=counted-in-a-test source=estimate type=input`:                 "7",
		`postern_tokens_total deployment=counted-in-a-test source=estimate type=output`:                "",
		`postern_request_duration_seconds deployment=counted-in-a-test dialect=messages`:               "1 of 3",
		`postern_time_to_first_token_seconds deployment=counted-in-a-test dialect=messages`:            "1 of 0.5",
		`postern_time_per_output_token_seconds deployment=counted-in-a-test dialect=messages`:          "1 of 0.2",
	} {
		if got := gathered(t, collectors()...)[series]; got != want {
			t.Errorf("%s is %q, not %q", series, got, want)
		}
	}
	DropDeployment(model)
	for series := range gathered(t, collectors()...) {
		if strings.Contains(series, model) {
			t.Errorf("%s remains of a removed deployment", series)
		}
	}
}

// gathered returns the values of all series: "count of sum" of histograms.
func gathered(t *testing.T, collectors ...prometheus.Collector) map[string]string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			series := family.GetName()
			for _, label := range m.GetLabel() {
				series += " " + label.GetName() + "=" + label.GetValue()
			}
			values[series] = fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			if h := m.GetHistogram(); h != nil {
				values[series] = fmt.Sprintf("%d of %.1g", h.GetSampleCount(), h.GetSampleSum())
				if sum := h.GetSampleSum(); sum >= 1 {
					values[series] = fmt.Sprintf("%d of %.0f", h.GetSampleCount(), sum)
				}
			}
		}
	}
	return values
}

// A request costs no more allocations with the metrics of tokens than without.
func TestTokenMetricsAllocate(t *testing.T) {
	defer DropDeployment("m")
	ex := &serve.Exchange{Start: time.Now()}
	ex.Deployment = "m"
	ex.Operation = dialect.Operation{Kind: dialect.ChatCompletions, Dialect: dialect.Chat}
	ex.Outcome = activity.Failed
	ex.Usage = dialect.Usage{PromptTokens: 100, CachedTokens: 60, CompletionTokens: 21, ReasoningTokens: 5}
	if n := testing.AllocsPerRun(1000, func() {
		Observer{}.Counted(ex, ex.Usage)
	}); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

// docs/metrics.md has all metrics that count requests, with their labels.
func TestMetricsAreDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 100)
	for _, c := range collectors() {
		c.Describe(described)
	}
	close(described)
	for desc := range described {
		found := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`).FindStringSubmatch(desc.String())
		if found == nil {
			t.Fatalf("%s", desc)
		}
		for _, name := range append(strings.Split(found[2], ","), found[1]) {
			if !strings.Contains(string(manual), "`"+name+"`") {
				t.Errorf("docs/metrics.md lacks `%s` of %s", name, found[1])
			}
		}
	}
}

// With key_metrics, 1,000 keys have series of their own, until they are revoked.
func TestKeyMetrics(t *testing.T) {
	defer func() {
		for id := range keySeries {
			DropKey(id)
		}
		keyTokensTotal.Reset()
	}()
	for i := range maxKeySeries + 5 {
		countKeyTokens(fmt.Sprintf("key_%d", i), dialect.Usage{PromptTokens: 3, CompletionTokens: 2})
	}
	got := gathered(t, collectors()...)
	for series, want := range map[string]string{
		"postern_key_tokens_total key_id=key_0 type=input": "3", "postern_key_tokens_total key_id=key_999 type=output": "2",
		"postern_key_tokens_total key_id=key_1000 type=input": "", "postern_key_tokens_total key_id=_other type=input": "15",
	} {
		if got[series] != want {
			t.Errorf("%s is %q, want %q", series, got[series], want)
		}
	}
	DropKey("key_0")
	countKeyTokens("key_1000", dialect.Usage{PromptTokens: 1})
	if got := gathered(t, collectors()...); got["postern_key_tokens_total key_id=key_0 type=input"] != "" ||
		got["postern_key_tokens_total key_id=key_1000 type=input"] != "1" {
		t.Error("the place of a revoked key is not free")
	}
}
