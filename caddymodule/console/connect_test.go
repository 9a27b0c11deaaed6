package console

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/clients"
)

// The page for people with only a key needs no session. Its field has no name and its form no action: without its
// script, a browser cannot send the key to the console.
func TestConnect(t *testing.T) {
	h := newHouse(t)
	h.user(store0, "ada")
	b := h.browser()
	has(t, b.page("/console/sign-in"), `href="/console/connect"`)
	w := b.get("/console/connect")
	page := w.Body.String()
	has(t, page, "<noscript>", "needs JavaScript", `data-placeholder="`+clients.KeyPlaceholder+`"`, `data-api=""`,
		base+"/v1</code>", "/connect.js", `aria-describedby="key-hint"`)
	lacks(t, page, "code-curl", "maxlength", `id="key" name`, "action=", "htmx.min.js")
	if form := regexp.MustCompile(`<form[^>]*>`).FindString(page); !strings.Contains(form, ` hidden>`) {
		t.Errorf("a form without its script is visible: %s", form)
	}
	if h := w.Header(); h.Get("Content-Security-Policy") != policy || h.Get("Cache-Control") != "no-store" ||
		len(h.Values("Set-Cookie")) != 0 {
		t.Errorf("%v", h)
	}
	text, err := staticFiles.ReadFile("static/connect.js")
	must(t, err)
	script := string(text)
	lacks(t, script, "Storage", "cookie", "history", "indexedDB", "caches", "console.log", "innerHTML", "sendBeacon",
		"location.assign", "location.href", "location.hash", "postMessage")
	if header := "Authorization: \"Bearer \" + key"; strings.Count(script, header) != 1 {
		t.Errorf("the script does not send the key as %s", header)
	}
}

// The snippets are those of the model's own page, for what the query says: the page reads no records.
func TestConnectSnippets(t *testing.T) {
	b := newHouse(t).browser()
	page := b.page("/console/connect?model=qwen3:8b&window=32768&kind=chat")
	has(t, page, "ANTHROPIC_DEFAULT_HAIKU_MODEL=qwen3:8b\n", "CLAUDE_CODE_MAX_CONTEXT_TOKENS=32768\n",
		clients.KeyPlaceholder, "model_context_window = 32768", base+"/v1/chat/completions")
	lacks(t, page, "window too small: ")
	has(t, page, `data-window="32768"`) // the script offers smaller ones last
	small := b.page("/console/connect?model=gemma&window=8192")
	has(t, small, "window too small: 8k of 32k", "window too small: 8k of 16k")
	if n := strings.Count(small, "window too small: "); n != 6 {
		t.Errorf("%d clients are marked", n)
	}
	has(t, b.page("/console/connect?model=m"), "The context window is not known")
	has(t, b.page("/console/connect?model=m&window=100000000"), "model_context_window = 100000000")
	embeds := b.page("/console/connect?model=bge&window=0&kind=embeddings")
	has(t, embeds, base+"/v1/embeddings", "bge")
	lacks(t, embeds, "ANTHROPIC")
	for _, bad := range []string{
		"a%20b", "%3Cscript%3E", strings.Repeat("x", 129), "m&window=-5", "m&window=x", "m&window=100000001",
		"m&window=9007199254740993", "m&window=99999999999999999999",
	} {
		w := b.get("/console/connect?model=" + bad)
		if w.Code != http.StatusBadRequest || strings.Contains(w.Body.String(), "ANTHROPIC") ||
			strings.Contains(w.Body.String(), "<script>") {
			t.Errorf("%s: %d %s", bad, w.Code, mainPart(w.Body.String()))
		}
	}
}

// If Caddy's own authority has issued the certificate, curl names its root, and a line loads that.
func TestConnectOwnRoot(t *testing.T) {
	g := newGateway(t)
	g.endpoint.Verified = false
	lacks(t, g.page("/console/connect?model=m"), "curl --cacert", "code-root")
	g.endpoint.Root = "ROOT"
	page := html.UnescapeString(g.page("/console/connect?model=m"))
	if n := strings.Count(page, `mv "$s" root.crt`); n != 2 { // for people without JavaScript, too
		t.Errorf("%d lines load the root", n)
	}
	has(t, page, "curl --cacert root.crt -N https://gw.example.com",
		"curl --cacert root.crt https://gw.example.com/v1/key",
		`curl -fsSLk https://gw.example.com/console/root.crt -o "$s"`, `mv "$s" root.crt`,
		`export NODE_EXTRA_CA_CERTS="$PWD"/root.crt`)
	con := g.connector("gpu-box")
	g.deployment("qwen3:8b", con)
	w := g.post("/console/keys/setup", "client", "claude", "default_model", "qwen3:8b", "scope", "*")
	has(t, w.Body.String(), "--ca sha256:")
	lacks(t, w.Body.String(), "--pin", "--ca root.crt")
}

// If another site serves the API, the page may call it, and nothing else.
func TestConnectToAnotherSite(t *testing.T) {
	g := newGateway(t)
	g.endpoint.Console, g.endpoint.Verified = "https://admin.example.com/console/", false
	w := g.get("/console/connect")
	has(t, w.Body.String(), `data-api="https://gw.example.com"`, "--cacert")
	if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp,
		" connect-src 'self' https://gw.example.com; ") || len(csp) != len(policy)+len(" https://gw.example.com") {
		t.Errorf("%s", csp)
	}
	for _, one := range []manage.Endpoint{{URL: "https://gw.example.com"}, {}} { // not known
		g.endpoint = one
		w = g.get("/console/connect")
		has(t, w.Body.String(), `data-api=""`)
		if w.Header().Get("Content-Security-Policy") != policy {
			t.Errorf("%+v: %v", one, w.Header())
		}
	}
}
