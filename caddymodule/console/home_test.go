package console

import (
	"fmt"
	"slices"
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
	g.goes(g.get("/console/"), "/console/start")
	c := g.connector("gpu-box")
	g.lines.connect(c, "qwen3")
	g.deployment("qwen3", c)
	k, _, err := g.store.CreateKey(t.Context(), store.DefaultAccount, store.KeyFields{Name: "laptop", Scope: "*"})
	must(t, err)
	g.record(0, activity.Request{
		KeyID: k.ID, Deployment: "qwen3", InputTokens: 4000, OutputTokens: 300, BusyMillis: 3000,
		FirstTokenMillis: 210, TokensPerSecond: 100,
	})
	g.record(2, activity.Request{KeyID: k.ID, Deployment: "qwen3", InputTokens: 4000})
	g.goes(g.get("/console/"), "/console/home")
	page := g.page("/console/home")
	has(t, mainOf(page), "All models available", "<dt>Models</dt><dd>", ">1 of 1</a>",
		"<dt>Requests</dt><dd><a href=\"/console/activity?since=", ">1</a>", ">4.3k</a>", ">4.3k</td>", "192 ms", "99.1",
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
		must(t, errOf(g.store.CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: name, Scope: "*", ExpiresAt: &at})))
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
	has(t, main, "Connector attic &lt;b&gt; has never been online</a>: <a", ">llama</a> is unavailable</li>",
		"Key soon expires")
	lacks(t, main, "Model llama", "Key later", "All models available", "for qwen3 failed")
	fail(activity.UpstreamError, 1)
	main = mainOf(g.page("/console/home"))
	has(t, main, "6 requests for qwen3 failed</a>: upstream<")
	if strings.Index(main, "6 requests for qwen3") > strings.Index(main, "Key soon expires") {
		t.Error("failures are not first")
	}
	g.lines.report(c, health.Server{Known: true})
	main = mainOf(g.page("/console/home"))
	has(t, main, "Connector gpu-box cannot reach its model server default since <time", ">qwen3</a> is unavailable</li>")
	lacks(t, main, "Model qwen3", "for qwen3 failed")
	for i := range maxAlerts {
		g.deployment(fmt.Sprint("gone-", i), away)
		g.connector(fmt.Sprint("gone-", i))
	}
	has(t, mainOf(g.page("/console/home")), "more.</p>", `, and <a href="/console/models">others</a></li>`)
}

func TestEdgeAlerts(t *testing.T) {
	edges := []manage.Edge{
		{Name: "a", State: manage.EdgeLost},
		{Name: "b", State: manage.EdgeServing},
		{Name: "c", State: manage.EdgeUnknown},
	}
	for want, got := range map[string][]alert{
		"[Gateway a: lost since]": edgeAlerts(edges), "[]": edgeAlerts(nil),
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

// Use is that of the day, and limits of which most is used are alerts.
func TestHomeQuotas(t *testing.T) {
	g := newGateway(t)
	c := g.connector("gpu-box")
	g.lines.connect(c, "qwen3")
	g.deployment("qwen3", c)
	create := func(name string, l limits.UsageLimits) string {
		k, _, err := g.store.CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: name, Scope: "*", Limits: l})
		must(t, err)
		return k.ID
	}
	mia := g.user(store0, "mia")
	group := func(name string, l limits.UsageLimits, members ...string) string {
		created, err := g.store.CreateGroup(t.Context(), store0,
			store.GroupFields{Name: name, Scope: "*", Limits: l, Members: members})
		must(t, err)
		return created.ID
	}
	team := group("team", limits.UsageLimits{TokensPerDay: 500, TokensPerMonth: 600}, mia.ID)
	group("rest", limits.UsageLimits{TokensPerDay: 500})
	k, _, err := g.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "mias", Scope: "*", Owner: mia.ID})
	must(t, err)
	g.record(0, activity.Request{KeyID: k.ID, Deployment: "qwen3", BusyMillis: 10, InputTokens: 500})
	ofTeam := []string{
		`notice-bad"><a href="/console/groups/` + team + `">Group team has used 500 of its 500 tokens per day.`,
		`notice"><a href="/console/groups/` + team + `">Group team has used 500 of its 600 tokens per month.`,
	}
	has(t, mainOf(g.page("/console/home")), ofTeam...) // without other limits
	most, all := create("most", limits.UsageLimits{TokensPerMonth: 100_000}),
		create("all", limits.UsageLimits{TokensPerDay: 1000, RequestsPerDay: 100})
	some := create("some", limits.UsageLimits{TokensPerDay: 1000})
	must(t, errOf(g.store.SetAccount(t.Context(), store.DefaultAccount,
		func(a *store.Account) { a.Limits.RequestsPerDay = 4 })))
	for key, tokens := range map[string]int{most: 80_000, all: 1200, some: 799} {
		g.record(0, activity.Request{KeyID: key, Deployment: "qwen3", BusyMillis: 10, InputTokens: tokens})
	}
	main := mainOf(g.page("/console/home"))
	has(t, main, ">Today<", ">82.5k<",
		`notice-bad"><a href="/console/settings">The account has used 4 of its 4 requests per day.`,
		`notice-bad"><a href="/console/keys/`+all+"\">Key all has used 1\u202f200 of its 1\u202f000 tokens per day.",
		`notice"><a href="/console/keys/`+most+"\">Key most has used 80\u202f000 of its 100\u202f000 tokens per month.")
	has(t, main, ofTeam...)
	lacks(t, main, "Key some has", "Group rest has")
}

// A connector or a model server names the models that it makes unavailable or degraded. Others have alerts of their
// own, with the fix.
func TestOutageAlerts(t *testing.T) {
	seen := time.Now()
	connectors := []manage.Connector{
		{Connector: store.Connector{ID: "a", Name: "mac", LastSeenAt: &seen}, State: manage.Offline},
		{Connector: store.Connector{ID: "b", Name: "gpu"}, State: manage.Online, Upstreams: []manage.Upstream{
			{Name: "up", State: manage.Reachable}, {Name: "down", State: manage.Down, Since: &seen},
		}},
		{Connector: store.Connector{ID: "c", Name: "new"}, State: manage.Offline},
	}
	route := func(connector, upstream string, s health.State) manage.DeploymentRoute {
		return manage.DeploymentRoute{ID: connector, Upstream: upstream, State: s}
	}
	offline, works := route("a", "", health.Offline), route("b", "up", health.Available)
	down, hangs := route("b", "down", health.ServerDown), route("b", "up", health.Hanging)
	cuts, missing := route("b", "up", health.CutsPrompts), route("b", "", health.UpstreamMissing)
	model := func(name string, s health.State, routes ...manage.DeploymentRoute) manage.Deployment {
		return manage.Deployment{
			Deployment: store.Deployment{Name: name}, State: s, Through: routes, Warning: "the fix of " + name,
		}
	}
	got := outageAlerts([]manage.Deployment{
		model("fine", health.Available, works), model("gone", health.Offline, offline),
		model("half", health.Degraded, offline, works), model("none", health.ServerDown, offline, down),
		model("stuck", health.Hanging, offline, hangs), model("cuts", health.CutsPrompts, cuts),
		model("slow", health.Slow, route("b", "up", health.Slow)),
		model("lost", health.UpstreamMissing, missing),
	}, connectors)
	var texts []string
	for _, a := range got {
		text := fmt.Sprint(a.Text, a.Why, " ", a.Bad, a.Since != nil)
		for _, d := range a.Models {
			text += " " + d.Name
		}
		texts = append(texts, text)
	}
	want := []string{
		"Connector mac is offline true true gone half none stuck",
		"Connector gpu cannot reach its model server down true true none",
		"Connector new has never been online false false",
		"Model stuckthe fix of stuck true false", "Model cutsthe fix of cuts false false",
		"Model slowthe fix of slow false false",
		"Model lostthe fix of lost true false",
	}
	if !slices.Equal(texts, want) {
		t.Errorf("alerts\n%s", strings.Join(texts, "\n"))
	}
}

// Home and a model's page show what a server has loaded that loads one model at a time.
func TestLoadedModels(t *testing.T) {
	g := newGateway(t)
	box, rack := g.connector("gpu-box"), g.connector("rack")
	g.lines.connect(box, "qwen3")
	g.lines.connect(rack, "qwen3")
	g.deployment("qwen3", box)
	const none = "Servers that load one model at a time"
	lacks(t, mainOf(g.page("/console/home")), none)
	lacks(t, mainOf(g.page("/console/models/show?name=qwen3")), "<dt>Loaded")
	g.lines.mu.Lock()
	g.lines.infos[0].States[0].OneModel = true
	g.lines.mu.Unlock()
	page := mainOf(g.page("/console/home"))
	_, page, _ = strings.Cut(page, none)
	has(t, page, `<a href="/console/connectors/show?id=`+box.ID+`">gpu-box</a>`, ">qwen&lt;3&gt;<", ">3<", ">4.5 s<")
	lacks(t, page, "rack")
	has(t, mainOf(g.page("/console/models/show?name=qwen3")),
		`<dt>Loaded</dt><dd>qwen&lt;3&gt; <span class="muted">· one model at a time · 3 swaps took 5s</span>`)
}

// Each number of Home and of the models leads to what it counts, since midnight.
func TestHomeNumbers(t *testing.T) {
	g := newGateway(t)
	c := g.connector("gpu-box")
	g.lines.connect(c, "qwen3")
	g.deployment("qwen3", c)
	g.deployment("idle", c)
	g.running = map[string][2]int{"qwen3": {4, 7}}
	ada, _ := g.store.FindUser("ada")
	k, _, err := g.store.CreateKey(t.Context(), store.DefaultAccount,
		store.KeyFields{Name: "laptop", Scope: "*", Owner: ada.ID})
	must(t, err)
	for class, n := range map[string]int{"": 5, activity.PolicyError: 3, activity.UpstreamError: 2} {
		for range n {
			g.record(0, activity.Request{
				KeyID: k.ID, KeyName: "laptop", Deployment: "qwen3", Connector: c.ID, ErrorClass: class, InputTokens: 100,
			})
		}
	}
	g.record(0, activity.Request{KeyID: "key_gone", Deployment: "other"})
	since := "since=" + time.Now().UTC().Format(time.DateOnly) + "T00%3a00%3a00Z"
	numbers := func(page, filter string, counts ...string) {
		t.Helper()
		for i, n := range counts {
			status := []string{"", "status=failed&amp;", "status=refused&amp;"}[i]
			has(t, page, `<a href="/console/activity?`+filter+status+since+`">`+n+`</a>`)
		}
	}
	page := mainOf(g.page("/console/home"))
	has(t, page, "<dt>Running</dt><dd>4<", "<dt>Queued</dt><dd>7<", `/console/usage?range=24h&amp;by=key&amp;user=`+ada.ID)
	numbers(page, "", "11", "2", "3")
	numbers(page, "model=qwen3&amp;", "10", "2", "3")
	has(t, page, `<a href="/console/activity?`+strings.ReplaceAll(since, "%3a", ":")+`&amp;user=`+ada.ID+`">10</a>`)
	numbers(mainOf(g.page("/console/models")), "model=qwen3&amp;", "10", "2")
	page = mainOf(g.page("/console/models/show?name=qwen3"))
	numbers(page, "model=qwen3&amp;", "10", "2", "3")
	has(t, page, "<dt>Running</dt><dd>4<", "<dt>Queued</dt><dd>7<", "<h2 id=\"requests-title\">Last requests",
		`<a href="/console/activity?model=qwen3">All requests</a>`, `<a href="/console/keys/`+k.ID+`">laptop</a>`,
		`<a href="/console/connectors/show?id=`+c.ID+`">gpu-box</a>`, "<figcaption>Requests</figcaption>",
		", Failed: 2 requests")
	lacks(t, mainOf(g.page("/console/models/show?name=idle")), "Last requests", "<figcaption>")
}
