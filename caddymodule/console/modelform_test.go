package console

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// The form sets and shows what clients see of a model. A wrong value comes back as typed, with the name of its field.
func TestRegisterForClients(t *testing.T) {
	g := newGateway(t)
	gpu := g.connector("gpu-box")
	g.deployment("small", gpu)
	set := func(fields ...string) *httptest.ResponseRecorder {
		form := []string{"name", "qwen3", "change", "qwen3", "connector", gpu.ID}
		return g.post("/console/models", append(form, fields...)...)
	}
	const defaults = `{"temperature": 0.7}`
	g.goes(set("also_as", "coder\n claude-* other\n", "fallback", "small", "option.order", "first",
		"option.context_window", " 32768 ", "option.first_token_timeout", "2m", "option.defaults", defaults),
		"/console/models/show?name=qwen3")
	d, _ := g.store.Deployment(store.DefaultAccount, "qwen3")
	want := compat.Options{Order: compat.OrderFirst, ContextWindow: 32768, FirstTokenTimeout: "2m"}
	if d.Options.Defaults != `{"temperature":0.7}` || d.Fallback != "small" ||
		!slices.Equal(d.AlsoAs, []string{"coder", "claude-*", "other"}) {
		t.Errorf("registered: %+v", d)
	}
	if d.Options.Defaults = ""; d.Options != want {
		t.Errorf("registered: %+v", d.Options)
	}
	has(t, mainOf(g.page("/console/models/show?name=qwen3")), "coder, claude-*, other",
		`href="/console/models/show?name=small">small</a>`, "order=first")
	again := mainOf(g.page("/console/models/new?name=qwen3"))
	has(t, html.UnescapeString(again), ">coder\nclaude-*\nother</textarea>", "<option selected>small</option>",
		`value="32768"`, `value="2m"`, `>{"temperature":0.7}</textarea>`, "enable_thinking")
	lacks(t, again, "<option>qwen3</option>")

	wrong := set("also_as", "coder", "fallback", "small", "option.force", `{"a": 1`, "option.context_window", "40k")
	if wrong.Code != http.StatusBadRequest {
		t.Errorf("wrong values: status %d, want 400", wrong.Code)
	}
	has(t, html.UnescapeString(wrong.Body.String()), "Context window: Option", "must be a number of tokens",
		`>{"a": 1</textarea>`, `value="40k"`, ">coder</textarea>", "<option selected>small</option>")
	has(t, set("option.force", `{"a": 1`).Body.String(), "Forced parameters: Option", "must be a JSON object")
}

// The page shows the window of a model and how it is known, and the measurement of it.
func TestModelWindow(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.deployment("qwen3", con)
	g.lines.connect(con, "qwen3")
	has(t, mainOf(g.page("/console/models/show?name=qwen3")), "<dd>not known</dd>",
		"65536 is a guess", "press Measure on the page")
	server := health.Reported(true, []string{"qwen3"}, false)
	server.Windows = map[string]int{"qwen3": 8192}
	g.lines.report(con, server)
	has(t, mainOf(g.page("/console/models")), `<td data-label="Window" class="number">8 192</td>`)
	page := mainOf(g.page("/console/models/show?name=qwen3"))
	has(t, page, "8 192 tokens · the server lists it", "CLAUDE_CODE_MAX_CONTEXT_TOKENS=8192",
		"CLAUDE_CODE_MAX_OUTPUT_TOKENS=2048", "1.2 MB",
		"model_context_window = 8192", "&#34;context&#34;: 8192", "contextLength: 8192")
	lacks(t, page, "press Measure")

	page = g.post("/console/models/measure", "name", "qwen3").Body.String()
	has(t, page, "<!doctype html>", "gpu-box: The model server did not count")
	g.lines.disconnect()
	has(t, g.post("/console/models/measure", "name", "qwen3").Body.String(), "is offline")
}

// The form has a sentence about efforts, which follows the options and what answers have shown.
func TestEffortOfTheForm(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	set := func(options compat.Options) *store.Deployment {
		d, err := g.store.SetDeployment(t.Context(), store.Deployment{
			Account: store.DefaultAccount, Name: "qwen3", Connectors: []string{con.ID}, Options: options,
		})
		must(t, err)
		return &d
	}
	form := func(want string) {
		t.Helper()
		has(t, mainOf(g.page("/console/models/new?name=qwen3")),
			`<p class="hint"><code>/effort</code> of Claude Code `+want+".</p>")
	}
	set(compat.Options{})
	form("is not sent: choose true, or set Reasoning efforts below")
	set(compat.Options{Efforts: `{"none":"low"}`})
	form("is not sent: choose true, or set Reasoning efforts below")
	set(compat.Options{Efforts: `{"none":"low","max":"high"}`})
	form("– sent, but no answer has shown reasoning yet: max")
	d := set(compat.Options{Reasoning: true})
	form("– sent, but no answer has shown reasoning yet: low, medium, high, xhigh, max")
	g.observed.Effort(d, "ann", "max", true, false)
	form("– sent, but no answer has shown reasoning yet: low, medium, high, xhigh" +
		" – no longer sent, because the model rejects it: max")
	g.observed.Effort(d, "ann", "low", false, true)
	g.observed.Effort(d, "ann", "high", true, true)
	form("– works, because answers have shown reasoning: low, high" +
		" – sent, but no answer has shown reasoning yet: medium, xhigh" +
		" – no longer sent, because the model rejects it: max")
	set(compat.Options{Reasoning: true})
	form("– sent, but no answer has shown reasoning yet: low, medium, high, xhigh, max")
	lacks(t, mainOf(g.page("/console/models/new")), "/effort")
}

// The page of a model without a limit suggests one where two keys have used it at once, and the form shows the slots
// that the server lists.
func TestSuggestedLimit(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.lines.connect(con, "qwen3")
	g.deployment("qwen3", con)
	d, _ := g.store.Deployment(store.DefaultAccount, "qwen3")
	g.observed.Route = func(string, tunnel.Target) (tunnel.DeploymentRoute, bool) { return tunnel.DeploymentRoute{}, true }
	lacks(t, g.page("/console/models/show?name=qwen3"), "max_concurrency")
	for _, key := range []string{"key_1", "key_2"} {
		g.observed.Begin(&d, con.ID, key, true)
	}
	has(t, g.page("/console/models/show?name=qwen3"),
		"set <code>max_concurrency</code> to the number of slots of the model server",
		`<a href="/console/models/new?name=qwen3">Change</a>`)
	g.lines.mu.Lock()
	g.lines.serve[con.ID] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"data":[{"id":"qwen3","status":{"value":"loaded","args":["--parallel","4"]}},{"id":"other"}]}`)
	})
	g.lines.mu.Unlock()
	has(t, g.page("/console/models/new?name=qwen3"), ">qwen3 (4 slots)</option>", ">other</option>")
}
