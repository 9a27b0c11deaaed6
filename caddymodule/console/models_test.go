package console

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

func TestModelsList(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/models"), "needs a connector", `href="/console/start#pair"`)
	con := g.connector("gpu-box")
	has(t, g.page("/console/models"), "No models yet", `href="/console/models/new"`)

	g.deployment("org/qwen3:8b@x+y", con)
	page := mainOf(g.page("/console/models"))
	has(t, page, "org/qwen3:8b@x", "offline", "0 of 1", "/console/models/show?name=org%2fqwen3%3a8b%40x%2by")
	g.lines.connect(con)
	has(t, mainOf(g.page("/console/models")), "available", "1 of 1 available")
	must(t, errOf(g.store.SetDeployment(t.Context(),
		store.Deployment{
			Account: store.DefaultAccount, Name: "lost", Connectors: []string{con.ID},
			Upstream: "gone",
		})))
	has(t, mainOf(g.page("/console/models?q=lost")), ">upstream missing<")
	page = g.page("/console/models/show?name=lost")
	has(t, page, "<title>lost · Postern</title>")
	has(t, mainOf(page), "Requests fail now")
}

// A model is available only if its server is, and lists it.
func TestModelStates(t *testing.T) {
	g := newGateway(t)
	con, other := g.connector("gpu-box"), g.connector("attic")
	g.deployment("qwen3", con)
	must(t, errOf(g.store.SetDeployment(t.Context(),
		store.Deployment{
			Account: store.DefaultAccount, Name: "both", Connectors: []string{con.ID, other.ID},
			Model: "qwen3",
		})))
	g.lines.connect(con, "qwen3")
	g.lines.connect(other, "qwen3")
	has(t, mainOf(g.page("/console/models")), "2 of 2 available")

	g.lines.report(con, health.Reported(false, nil, false))
	page := mainOf(g.page("/console/models"))
	has(t, page, "1 of 2 available", ">model server down<", ">degraded (1 of 2)<", ">gpu-box</a> (model server down), <a")
	page = mainOf(g.page("/console/models/show?name=qwen3"))
	has(t, page, ">model server down<", "Requests fail now: connector &#34;gpu-box&#34; cannot reach its model server")
	page = mainOf(g.page("/console/models/show?name=both"))
	has(t, page, ">degraded (1 of 2)<", ">available<", ">model server down<",
		"Connector &#34;gpu-box&#34; cannot reach its model server")
	has(t, mainOf(g.page("/console/connectors")), `default <span class="badge badge-bad">down</span>`)
	has(t, mainOf(g.page("/console/start")), "cannot reach its model server")

	g.lines.report(con, health.Reported(true, []string{"qwen4"}, false))
	has(t, mainOf(g.page("/console/models")), "1 of 2 available", ">model missing<")
	has(t, mainOf(g.page("/console/models/show?name=qwen3")), "does not list the model")
	has(t, mainOf(g.page("/console/connectors")), "default (1 model)")

	g.lines.disconnect()
	g.store.TouchConnector(con.ID, nil)
	page = mainOf(g.page("/console/models"))
	has(t, page, "0 of 2 available", ">offline</span> <span class=\"muted\">since <time data-moment")
	has(t, mainOf(g.page("/console/models/show?name=qwen3")), "The connector is offline. Run <code>connector run</code>")
	has(t, mainOf(g.page("/console/connectors")), `data-label="Seen"><span><time`, `<span class="muted">never</span>`)
	if n := g.lines.asked.Load(); n != 0 {
		t.Errorf("the pages asked model servers %d times", n)
	}
}

// The form queries the models of a connector, with and without scripts.
func TestRegister(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/models/new"), "needs a connector")
	gpu, attic := g.connector("gpu-box"), g.connector("attic")
	g.lines.connect(gpu, "llama3.2:3b", mean)

	page := mainOf(g.page("/console/models/new"))
	has(t, page, "gpu-box", "attic (offline)", "Choose a connector", "Load models")
	lacks(t, page, "llama3.2:3b")

	pick := target{"", "llama3.2:3b"}.encode()
	for _, path := range []string{
		"/console/models/new?connector=" + gpu.ID + "&name=typed",
		"/console/models/choices?connector=" + gpu.ID,
	} {
		page = g.page(path)
		has(t, html.UnescapeString(page), `<option value="`+pick+`">llama3.2:3b</option>`)
		plain(t, page)
	}
	has(t, g.page("/console/models/new?connector="+gpu.ID+"&name=typed"), `value="typed"`)
	has(t, g.page("/console/models/choices?connector="+attic.ID), "attic is offline", "<details open>")

	g.goes(g.post("/console/models", "connector", gpu.ID, "pick", pick), "/console/models/show?name=llama3.2%3A3b")
	d, ok := g.store.Deployment(store.DefaultAccount, "llama3.2:3b")
	if !ok || d.Model != "llama3.2:3b" || d.Upstream != "" || !slices.Equal(d.Connectors, []string{gpu.ID}) {
		t.Errorf("registered: %+v", d)
	}
	has(t, g.page("/console/models"), "llama3.2:3b is published")

	again := mainOf(g.page("/console/models/new?name=llama3.2:3b"))
	has(t, again, "Change llama3.2:3b", "readonly", " selected>llama3.2:3b</option>")
	g.goes(g.post("/console/models", "name", "llama3.2:3b", "change", "llama3.2:3b", "connector", attic.ID, "pick", pick,
		"upstream", "vllm", "model", "typed one"), "/console/models/show?name=llama3.2%3A3b")
	d, _ = g.store.Deployment(store.DefaultAccount, "llama3.2:3b")
	if d.Model != "typed one" || d.Upstream != "vllm" || !slices.Equal(d.Connectors, []string{attic.ID}) {
		t.Errorf("the typed route must win over the picked one: %+v", d)
	}
	again = mainOf(g.page("/console/models/new?name=llama3.2:3b"))
	has(t, again, `value="typed one"`, `value="vllm"`, "<details open>")
}

// The form sets and shows several connectors and a limit, and the pages show the
// state of each connector.
func TestRegisterOnSeveral(t *testing.T) {
	g := newGateway(t)
	gpu, attic, cellar := g.connector("gpu-box"), g.connector("attic"), g.connector("cellar")
	g.lines.connect(gpu, "qwen3")
	form := url.Values{"name": {"qwen3"}, "connector": {gpu.ID}, "also": {attic.ID, gpu.ID}, "max_concurrency": {" 4 "}}
	g.goes(g.request(http.MethodPost, "/console/models", form.Encode()), "/console/models/show?name=qwen3")
	d, _ := g.store.Deployment(store.DefaultAccount, "qwen3")
	if !slices.Equal(d.Connectors, []string{gpu.ID, attic.ID}) || d.MaxConcurrency != 4 {
		t.Errorf("registered: %+v", d)
	}
	has(t, mainOf(g.page("/console/models")),
		">gpu-box</a>, <a href=\"/console/connectors/show?id="+attic.ID+"\">attic</a> (offline)", "1 of 1")
	has(t, mainOf(g.page("/console/models/show?name=qwen3")), "gpu-box", "attic", "4 at once")
	again := mainOf(g.page("/console/models/new?name=qwen3"))
	has(t, again, `value="`+attic.ID+`" checked`, `name="max_concurrency" value="4"`, `value="`+gpu.ID+`" selected`)
	lacks(t, again, `value="`+cellar.ID+`" checked`, `name="also" value="`+gpu.ID+`"`)
	has(t, again, "To rename, publish it under the new name")
	lacks(t, mainOf(g.page("/console/models/new")), "Also served by", "<details open>") // no connector is chosen

	form["change"] = form["name"]
	form["also"] = []string{cellar.ID, attic.ID} // attic was before cellar
	g.goes(g.request(http.MethodPost, "/console/models", form.Encode()), "/console/models/show?name=qwen3")
	d, _ = g.store.Deployment(store.DefaultAccount, "qwen3")
	if !slices.Equal(d.Connectors, []string{gpu.ID, attic.ID, cellar.ID}) {
		t.Errorf("the order of connectors is %v", d.Connectors)
	}

	w := g.post("/console/models", "name", "qwen3", "change", "qwen3", "connector", gpu.ID, "also", cellar.ID,
		"max_concurrency", "four")
	g.refused(w, http.StatusBadRequest, "")
	has(t, w.Body.String(), "must be a whole number", `value="four"`, `value="`+cellar.ID+`" checked`)
	has(t, mainOf(g.page("/console/connectors/"+attic.ID+"/remove")), "These models use it", "<li>qwen3</li>")
}

// The form sets and shows the switches of a model; defaults are not stored.
func TestRegisterOptions(t *testing.T) {
	g := newGateway(t)
	gpu := g.connector("gpu-box")
	set := func(fields ...string) *httptest.ResponseRecorder {
		return g.post("/console/models", append([]string{"name", "r1", "change", "r1", "connector", gpu.ID}, fields...)...)
	}
	g.goes(set("option.think_tags", "true", "option.remote_media", "allow", "option.file_parts", "false"),
		"/console/models/show?name=r1")
	want := compat.Options{ThinkTags: true, RemoteMedia: compat.RemoteAllow}
	if d, _ := g.store.Deployment(store.DefaultAccount, "r1"); d.Options != want {
		t.Errorf("registered: %+v", d.Options)
	}
	has(t, mainOf(g.page("/console/models/show?name=r1")), "Options", "think_tags=true remote_media=allow")
	again := mainOf(g.page("/console/models/new?name=r1"))
	has(t, again, `<details id="options" open>`, `<details id="names">`,
		`name="option.think_tags"><option value="false">false</option><option value="true" selected>`,
		`<option value="allow" selected>`, `name="option.order"><option value="spread">`)
	// The choices stay when the models of a connector are loaded.
	has(t, mainOf(g.page("/console/models/new?name=r1&connector="+gpu.ID+"&option.order=first")),
		`<option value="first" selected>`, `name="option.remote_media"><option value="deny">`)

	w := set("option.remote_media", "https")
	if w.Code != http.StatusBadRequest {
		t.Errorf("an unknown value: status %d, want 400", w.Code)
	}
	has(t, w.Body.String(), "must be deny or allow")
	g.goes(set(), "/console/models/show?name=r1")
	if d, _ := g.store.Deployment(store.DefaultAccount, "r1"); d.Options != (compat.Options{}) {
		t.Errorf("registered without options: %+v", d.Options)
	}
	lacks(t, mainOf(g.page("/console/models/show?name=r1")), "<dt>Options")
}

func TestRegisterFaults(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.connector("other")
	for _, tt := range []struct {
		name   string
		form   []string
		status int
		texts  []string
	}{
		{"no connector", []string{"name", "m"}, 400, []string{"Choose the connector", `value="m"`}},
		{"unknown connector", []string{"name", "m", "connector", "con_none"}, 404, []string{"con_none", `value="m"`}},
		{
			"bad name",
			[]string{"name", "a b", "connector", con.ID, "model", "x"},
			400,
			[]string{"use letters", `value="a b"`, `value="x"`, `value="` + con.ID + `" selected`},
		},
		{"no name at all", []string{"connector", con.ID}, 400, []string{"empty"}},
		{
			"model with a name that cannot be public",
			[]string{"connector", con.ID, "pick", target{"", "my model"}.encode()},
			400,
			[]string{"my model"},
		},
		{"hostile name", []string{"name", mean, "connector", con.ID}, 400, []string{html.EscapeString("<script>")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := g.post("/console/models", tt.form...)
			if w.Code != tt.status {
				t.Errorf("status %d, want %d", w.Code, tt.status)
			}
			has(t, w.Body.String(), tt.texts...)
			lacks(t, w.Body.String(), "<script>alert")
		})
	}
	if ds := g.store.Deployments(store.DefaultAccount); len(ds) != 0 {
		t.Errorf("registered: %+v", ds)
	}
}

func TestModelPage(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.deployment("org/qwen3:8b", con)
	page := mainOf(g.page("/console/models/show?name=org/qwen3:8b"))
	has(t, page, "connector is offline", "https://gw.example.com/v1/chat/completions",
		"ANTHROPIC_BASE_URL=https://gw.example.com",
		html.EscapeString(`model = "org/qwen3:8b"`), "wire_api", "OPENAI_API_BASE_URL", "from openai import OpenAI",
		"sk-svc-YOUR-KEY")
	g.refused(g.get("/console/models/show?name=none"), http.StatusNotFound, "")
	g.refused(g.get("/console/models/show"), http.StatusNotFound, "")
}

// An embeddings model has the snippets of embeddings, and no playground.
func TestEmbeddingsModel(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.goes(g.post("/console/models", "name", "bge-m3", "connector", con.ID, "kind", "embeddings"),
		"/console/models/show?name=bge-m3")
	page := mainOf(g.page("/console/models/show?name=bge-m3"))
	has(t, page, "https://gw.example.com/v1/embeddings", "client.embeddings.create", "<dd>embeddings</dd>",
		"how long the answer takes")
	lacks(t, page, "chat/completions", "Claude Code", "Playground", "calls tools")
	has(t, mainOf(g.page("/console/models/new?name=bge-m3")), `<option selected>embeddings</option>`)
	has(t, mainOf(g.page("/console/models")), "bge-m3", "embeddings")
	w := g.post("/console/models/play?name=bge-m3", "prompt", "hello")
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "is not a chat model") {
		t.Errorf("a prompt: %d %s", w.Code, mainOf(w.Body.String()))
	}
	g.refused(g.post("/console/models", "name", "x", "connector", con.ID, "kind", "audio"), http.StatusBadRequest,
		"")
}

// A model that does not call tools is marked, in the result and for agents.
func TestModelWithoutTools(t *testing.T) {
	var out strings.Builder
	g := newGateway(t)
	for tools, marked := range map[string]bool{manage.ToolsNo: true, manage.ToolsWork: false, manage.ToolsUnknown: false} {
		out.Reset()
		result := manage.TestResult{OK: true, Tools: tools, ToolsReason: "the model wrote text"}
		must(t, g.console.templates[store.RoleAdmin].ExecuteTemplate(&out, "model-test", &result))
		if strings.Contains(out.String(), `class="notice" data-tools="no"`) != marked ||
			strings.Contains(out.String(), "notice-ok") == marked ||
			strings.Contains(out.String(), "badge-warn") != marked {
			t.Errorf("tools %s:\n%s", tools, out.String())
		}
	}
	g.deployment("qwen3", g.connector("gpu-box"))
	if n := strings.Count(g.page("/console/models/show?name=qwen3"), "toolless\" hidden>"); n != 7 {
		t.Errorf("%d tabs are for agents, want 7", n)
	}
}

// Without a configured address, the address of the page is used.
func TestModelPageWithoutURL(t *testing.T) {
	g := newHouse(t).browser()
	g.plain, g.endpoint.URL = true, ""
	g.signInAs(store.DefaultAccount, "ada")
	g.deployment("qwen3", g.connector("gpu-box"))
	has(t, g.page("/console/models/show?name=qwen3"), "http://gw.example.com/v1/chat/completions")
}

func TestModelTest(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.deployment("qwen3", con)
	offline := g.post("/console/models/test", "name", "qwen3").Body.String()
	has(t, offline, "offline")

	g.lines.connect(con, "qwen3")
	page := g.post("/console/models/test", "name", "qwen3").Body.String()
	has(t, page, "It works.", html.EscapeString("Good <b>day</b>"), "<!doctype html>")

	part := g.request(http.MethodPost, "/console/models/test", "name=qwen3",
		func(r *http.Request) { r.Header.Set("HX-Request", "true") }).Body.String()
	has(t, part, "It works.")
	lacks(t, part, "<html", "<main")
}

func TestModelRemove(t *testing.T) {
	g := newGateway(t)
	g.deployment("org/qwen3", g.connector("gpu-box"))
	has(t, mainOf(g.page("/console/models/remove?name=org/qwen3")), "Remove org/qwen3?", "Cancel")
	g.goes(g.post("/console/models/remove", "name", "org/qwen3"), "/console/models")
	if _, ok := g.store.Deployment(store.DefaultAccount, "org/qwen3"); ok {
		t.Error("it is still there")
	}
	has(t, g.page("/console/models"), "org/qwen3 is removed")
}

func TestModelsPaging(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	for _, r := range "abcdefghijklmnopqrstuvwxyz" {
		for _, n := range []string{"1", "2", "3"} {
			g.deployment("m-"+string(r)+n, con)
		}
	}
	first := mainOf(g.page("/console/models"))
	has(t, first, "m-a1", "1 to 50 of 78", `href="/console/models?page=2"`, `role="search"`)
	lacks(t, first, "m-z3")
	second := mainOf(g.page("/console/models?page=2"))
	has(t, second, "m-z3", "51 to 78 of 78", `href="/console/models?page=1"`)
	lacks(t, second, "m-a1")
	has(t, mainOf(g.page("/console/models?q=m-z")), "3 match", `value="m-z"`)
}

// "Use it" is first on the page of a model without requests, and for members. Others have a link to it.
func TestUseItFirst(t *testing.T) {
	h := newHouse(t)
	ada := h.in(h.user(store0, "ada"))
	_, member := h.ofRole(store.RoleMember)
	ada.deployment("qwen3", ada.connector("gpu-box"))
	const page, link, state = "/console/models/show?name=qwen3", `href="#use">Use it</a>`, `aria-label="State"`
	first := func(b *browser) bool {
		main := mainOf(b.page(page))
		if use := strings.Count(main, `id="use"`); use != 1 {
			t.Errorf("%d sections", use)
		}
		if first := strings.Index(main, `id="use"`) < strings.Index(main, state); first == strings.Contains(main, link) {
			t.Errorf("first: %t, with a link: %t", first, !first)
		}
		return strings.Index(main, `id="use"`) < strings.Index(main, state)
	}
	if !first(ada) || !first(member) {
		t.Error("a model without requests")
	}
	ada.record(0, activity.Request{Deployment: "qwen3"})
	if first(ada) || !first(member) {
		t.Error("a model with requests")
	}
}
