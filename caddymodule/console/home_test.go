package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The console opens on the Home tab as soon as the setup is done.
func TestHome(t *testing.T) {
	g := newGateway(t)
	g.moved(g.get("/console/"), "/console/start")
	c := g.connector("gpu-box")
	g.lines.connect(c, "qwen3")
	g.deployment("qwen3", c)
	k, _, err := g.store.CreateKey(t.Context(), store.DefaultAccount, store.KeyFields{Name: "laptop", Scope: "*"})
	if err != nil {
		t.Fatal(err)
	}
	g.record(0, activity.Request{
		KeyID: k.ID, Deployment: "qwen3", InputTokens: 4000, OutputTokens: 300, BusyMillis: 3000,
		FirstTokenMillis: 210,
	})
	g.record(2, activity.Request{KeyID: k.ID, Deployment: "qwen3", InputTokens: 4000})
	g.moved(g.get("/console/"), "/console/home")
	page := g.page("/console/home")
	has(t, mainOf(page), "All is well", "<dt>Models</dt><dd>", ">1 of 1</a>",
		"<dt>Requests</dt><dd><a href=\"/console/activity\">1</a>", ">4.3k</a>", "4\u202f300", "210 ms", "100",
		`badge-ok">available`)
	has(t, page, `aria-current="page">Home`)
}

// The Home tab has the alerts, failures first.
func TestAlerts(t *testing.T) {
	g := newGateway(t)
	c, away := g.connector("gpu-box"), g.connector("attic <b>")
	g.lines.connect(c, "qwen3")
	g.deployment("qwen3", c)
	g.deployment("llama", away)
	for name, expires := range map[string]time.Duration{"soon": 6 * 24 * time.Hour, "later": 8 * 24 * time.Hour} {
		at := time.Now().Add(expires)
		if _, _, err := g.store.CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: name, Scope: "*", ExpiresAt: &at}); err != nil {
			t.Fatal(err)
		}
	}
	fail := func(class string, n int) {
		for range n {
			g.record(0, activity.Request{KeyID: "key_1", Deployment: "qwen3", ErrorClass: class})
		}
	}
	fail("", 80)
	fail(activity.CallerError, 20)
	fail(activity.UpstreamError, 5)
	page := g.page("/console/home")
	main := mainOf(page)
	has(t, main, "Model llama: offline.</a>", "Connector attic &lt;b&gt; has never been online.", "Key soon expires")
	lacks(t, main, "Key later", "All is well", "of the last", "qwen3: ")
	fail(activity.GatewayError, 1)
	g.lines.report(c, health.Server{Known: true})
	main = mainOf(g.page("/console/home"))
	has(t, main, "6 of the last 106 requests for qwen3 failed.", "Model qwen3: model server down.",
		"Connector gpu-box cannot reach its model server default.")
	if strings.Index(main, "6 of the last") > strings.Index(main, "has never been online") {
		t.Error("failures are not first")
	}
	for i := range maxAlerts {
		g.deployment(fmt.Sprint("gone-", i), away)
	}
	has(t, mainOf(g.page("/console/home")), "more.</p>")
}

func TestEdgeAlerts(t *testing.T) {
	edges := []manage.Edge{
		{Name: "a", State: manage.EdgeLost},
		{Name: "b", State: manage.EdgeServing},
		{Name: "c", State: manage.EdgeUnknown},
	}
	for want, got := range map[string][]alert{
		"[Gateway a: lost since Gateway b does not answer.]": edgeAlerts(edges,
			manage.Reach{Partial: true, Silent: []string{"a", "b"}}),
		"[Another gateway does not answer, so its requests are missing.]": edgeAlerts(nil, manage.Reach{Partial: true}),
		"[]": edgeAlerts(nil, manage.Reach{}),
	} {
		texts := []string{}
		for _, a := range got {
			texts = append(texts, a.Text)
		}
		if fmt.Sprint(texts) != want {
			t.Errorf("%q, not %s", texts, want)
		}
	}
}

// Use is that of the day in UTC, and limits of which most is used are alerts.
func TestHomeQuotas(t *testing.T) {
	g := newGateway(t)
	c := g.connector("gpu-box")
	g.lines.connect(c, "qwen3")
	g.deployment("qwen3", c)
	create := func(name string, l limits.UsageLimits) string {
		k, _, err := g.store.CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: name, Scope: "*", Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		return k.ID
	}
	most, all := create("most", limits.UsageLimits{TokensPerMonth: 100_000}),
		create("all", limits.UsageLimits{TokensPerDay: 1000, RequestsPerDay: 100})
	some := create("some", limits.UsageLimits{TokensPerDay: 1000})
	if _, err := g.store.SetAccount(t.Context(), store.DefaultAccount,
		func(a *store.Account) { a.Limits.RequestsPerDay = 3 }); err != nil {
		t.Fatal(err)
	}
	for key, tokens := range map[string]int{most: 80_000, all: 1200, some: 799} {
		g.record(0, activity.Request{KeyID: key, Deployment: "qwen3", BusyMillis: 10, InputTokens: tokens})
	}
	main := mainOf(g.page("/console/home"))
	has(t, main, "Today (UTC)", ">82k<",
		`notice-bad"><a href="/console/settings">The account has used 3 of its 3 requests per day.`,
		`notice-bad"><a href="/console/keys/`+all+"\">Key all has used 1\u202f200 of its 1\u202f000 tokens per day.",
		`notice"><a href="/console/keys/`+most+"\">Key most has used 80\u202f000 of its 100\u202f000 tokens per month.")
	lacks(t, main, "Key some has")
}

// What answers show about a model server is an alert with its fix.
func TestModelAlerts(t *testing.T) {
	deployments := []manage.Deployment{{State: health.Available}}
	for _, state := range []health.State{health.Hanging, health.CutsPrompts, health.Offline} {
		deployments = append(deployments, manage.Deployment{
			Deployment: store.Deployment{Name: "m"}, State: state, Warning: "the fix",
		})
	}
	got := modelAlerts(deployments)
	if len(got) != 3 || got[0].Text != "Model m: the fix." || !got[0].Bad || got[1].Text != got[0].Text || got[1].Bad ||
		got[2].Text != "Model m: offline." {
		t.Errorf("alerts %+v", got)
	}
}
