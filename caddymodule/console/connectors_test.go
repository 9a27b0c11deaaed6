package console

import (
	"fmt"
	"html"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// mean is a name with markup, which pages must escape.
const mean = `"><script>alert(1)</script><a href='javascript:x' onx=y>{{.}}`

// plain checks that a page shows mean as text.
func plain(t testing.TB, page string) {
	t.Helper()
	main := mainOf(page)
	lacks(t, main, "<script>alert", "<a href='javascript", `value=""><`)
	has(t, main, html.EscapeString("<script>alert(1)</script>"))
}

// mainOf returns the part of a page that its tab renders.
func mainOf(page string) string {
	if at := strings.Index(page, "<main"); at >= 0 {
		page = page[at:]
	}
	if at := strings.Index(page, "</main>"); at >= 0 {
		page = page[:at]
	}
	return page
}

func TestConnectorsList(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/connectors"), "No connectors yet", `href="/console/start#pair"`)

	on, off := g.connector("gpu-box"), g.connector("attic")
	g.lines.connect(on, "m")
	page := mainOf(g.page("/console/connectors"))
	has(t, page, "1 of 2 online", "gpu-box", "attic", "203.0.113.7:40312", "v9.9.9",
		"older than the gateway (v9.9.10): its page has the line to run", "23 ms", "quic", "default",
		"/console/connectors/show?id="+on.ID, "/console/connectors/show?id="+off.ID)

	lacks(t, g.page("/console/connectors/show?id="+on.ID), "one model at a time")
	g.lines.mu.Lock()
	g.lines.infos[0].States[0].OneModel = true
	g.lines.mu.Unlock()
	has(t, g.page("/console/connectors/show?id="+on.ID),
		"one model at a time · qwen&lt;3&gt; is loaded · 3 swaps took 5s")
	has(t, mainOf(g.page("/console/connectors")),
		"default (1 model, one at a time, qwen&lt;3&gt; is loaded, 3 swaps took 5s)")

	page = mainOf(g.page("/console/connectors?q=ATT"))
	has(t, page, "attic")
	lacks(t, page, "gpu-box")
	has(t, g.page("/console/connectors?q=nothing"), "No connector matches", "Show all 2")
}

// The page has the gateway's pin, and during a rotation the next one.
func TestConnectorsPins(t *testing.T) {
	g := newGateway(t)
	page := mainOf(g.page("/console/connectors"))
	has(t, page, "gw.example.com:7443", tabsPin, "<code>caddy gateway identity rotate</code>")
}

func TestConnectorToken(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/connectors/new"), `name="name"`, "shown once")

	w := g.post("/console/connectors", "name", "gpu-box")
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("status %d, Cache-Control %q", w.Code, w.Header().Get("Cache-Control"))
	}
	has(t, w.Body.String(), "ptt_", html.EscapeString(`"tunnel_token": "`), "chmod 600 connector.json")
	lacks(t, g.page("/console/connectors"), "ptt_")

	again := g.post("/console/connectors", "name", "gpu-box")
	if again.Code != http.StatusConflict {
		t.Errorf("the same name again: status %d, want 409", again.Code)
	}
	has(t, again.Body.String(), `value="gpu-box"`, "gpu-box")
	lacks(t, again.Body.String(), "ptt_")

	empty := g.post("/console/connectors", "name", "")
	if empty.Code != http.StatusBadRequest {
		t.Errorf("no name: status %d, want 400", empty.Code)
	}
}

// Without a public address the page names the fix.
func TestConnectorTokenWithoutAddress(t *testing.T) {
	g := newGateway(t)
	g.endpoint.Public = ""
	w := g.post("/console/connectors", "name", "gpu-box")
	g.refused(w, http.StatusConflict, "")
	has(t, w.Body.String(), "public gw.example.com:7443", `value="gpu-box"`)
}

func TestConnectorRemove(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.deployment("qwen3", con)
	path := "/console/connectors/" + con.ID + "/remove"
	page := mainOf(g.page(path))
	has(t, page, "qwen3", "first")
	lacks(t, page, "<form method")
	g.refused(g.post(path), http.StatusConflict, "")

	must(t, errOf(g.store.RemoveDeployment(t.Context(), store.DefaultAccount, "qwen3")))
	has(t, mainOf(g.page(path)), `<form method="post">`, "Cancel")
	if _, there := g.store.Connector(con.ID); !there {
		t.Fatal("asking removed it")
	}
	g.goes(g.post(path), "/console/connectors")
	if _, there := g.store.Connector(con.ID); there {
		t.Error("it is still there")
	}
	has(t, g.page("/console/connectors"), "gpu-box is removed")
	g.refused(g.get(path), http.StatusNotFound, "")
}

func TestConnectorNamesAreText(t *testing.T) {
	g := newGateway(t)
	con := g.connector(mean)
	g.lines.connect(con)
	g.lines.infos[0].Version, g.lines.infos[0].OS, g.lines.infos[0].Upstreams = mean, mean, []string{mean}
	plain(t, g.page("/console/connectors"))
	plain(t, g.page("/console/connectors/"+con.ID+"/remove"))
	plain(t, g.post("/console/connectors", "name", mean).Body.String())
	plain(t, g.page("/console/models/new"))
	g.deployment("m", con)
	plain(t, g.page("/console/models"))
	plain(t, g.page("/console/models/show?name=m"))
	plain(t, g.page("/console/connectors?q="+"%3Cscript%3Ealert(1)%3C/script%3E"))
}

// The page of a connector that is older than the gateway has the line that replaces its program.
func TestOlderConnector(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	path := "/console/connectors/show?id=" + con.ID
	lacks(t, mainOf(g.page(path)), "older than the gateway")
	g.lines.connect(con, "m")
	has(t, mainOf(g.page(path)),
		"This connector is older than the gateway (v9.9.10). On its machine, run the install line",
		`<code id="code-update">curl -fsSL `, "/console/install.sh | sh</code>", "/upgrade.md\">Packages and images</a>")
	g.lines.infos[0].OS = "plan9/amd64"
	page := mainOf(g.page(path))
	has(t, page, "(v9.9.10), which has no connector for its system")
	lacks(t, page, "install.sh")
	g.lines.infos[0].Version = "v9.9.9-dev.2589+g8378712589ce"
	has(t, g.page("/console/connectors"), `title="v9.9.9-dev.2589&#43;g8378712589ce`, ">v9.9.9-dev.2589</td>")
	g.lines.infos[0].Version = "v9.9.10"
	lacks(t, mainOf(g.page(path)), "older than the gateway")
}

// The page of a connector lists its last failed requests, and leads to all of its requests.
func TestConnectorFailures(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	path := "/console/connectors/show?id=" + con.ID
	has(t, mainOf(g.page(path)), "Last failed requests</h2>", `<p class="muted">None.</p>`)
	for id, class := range map[string]string{
		"req_ok": "", "req_bad": activity.UpstreamError, "req_theirs": activity.CallerError,
	} {
		g.log.Record(store.DefaultAccount, activity.Request{
			ID: id, Time: time.Now(), KeyID: "key_1", KeyName: "laptop", Deployment: "qwen3", Connector: con.ID,
			Status: http.StatusBadGateway, ErrorClass: class, Error: "It is <broken>.",
		})
	}
	page := mainOf(g.page(path))
	has(t, page, "/console/activity/req_bad", "/console/keys/key_1", "/console/models/show?name=qwen3",
		"It is &lt;broken&gt;.", "/console/activity?connector="+con.ID+"&amp;status=failed")
	lacks(t, page, "req_ok", "req_theirs")
	since := strings.ReplaceAll(time.Now().UTC().Truncate(time.Hour).Format(time.RFC3339), ":", "%3a")
	has(t, page, "&amp;since="+since+`">3 requests</a>`, "&amp;status=failed&amp;since="+since+`">1 failed</a>`,
		`class="series-bad"`)
}

// An offline connector keeps the address, the version and the models of its last tunnel, and many models are folded.
func TestOfflineConnector(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	con := g.connector("gpu-box")
	page := "/console/connectors/show?id=" + con.ID
	for i := range 11 {
		g.deployment(fmt.Sprint("model-", i), con)
		has(t, g.page(page), map[bool]string{true: "<details open><summary>", false: "<details><summary>"}[i < 10])
	}
	has(t, g.page(page), "11 models</summary>")
	lacks(t, mainOf(g.page(page)), "Last address")
	g.store.TouchConnector(con.ID,
		&store.LastTunnel{Remote: "203.0.113.9:4000", Version: "v1.2.3", OS: "linux/arm64", Models: []string{"a<b>", "c"}})
	has(t, mainOf(g.page(page)), `mono muted">203.0.113.9:4000`, `muted">v1.2.3, linux/arm64`, "a&lt;b&gt;, c")
	list := mainOf(g.page("/console/connectors"))
	has(t, list, `muted" title="Last known address">203.0.113.9:4000<`, ">v1.2.3<")
	g.lines.connect(con, "m")
	lacks(t, mainOf(g.page(page))+mainOf(g.page("/console/connectors")), "203.0.113.9:4000", "v1.2.3")
}
