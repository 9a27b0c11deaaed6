package console

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/clients"
)

var useCode = regexp.MustCompile(`USE-[0-9A-Z]{4}-[0-9A-Z]{4}`)

func (g *browser) trade(body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, base+"/console/use", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	g.console.ServeHTTP(w, r) // without a session
	return w
}

// The page of a new code shows the lines that trade it for a key of the one who made it.
func TestClientSetup(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/keys/setup"), "No chat models yet")
	con := g.connector("gpu-box")
	g.deployment("qwen3:8b", con)
	g.deployment("llama3", con)
	has(t, g.page("/console/keys"), `href="/console/keys/setup"`)
	has(t, g.page("/console/models/show?name=llama3"), `href="/console/keys/setup?default_model=llama3"`)
	form := g.page("/console/keys/setup?default_model=qwen3:8b&client=codex")
	has(t, form, `<option value="claude">Claude Code`, `<option value="codex" selected>`,
		`<option value="qwen3:8b" selected>qwen3:8b</option>`,
		`value="*"`,
		"2 models match", `formaction="/console/keys/setup"`, `id="requests_per_minute"`)
	lacks(t, form, `name="name"`, `value="curl"`)

	w := g.post("/console/keys/setup", "client", "claude", "default_model", "qwen3:8b", "scope", "qwen*", "days", "7",
		"requests_per_minute", "60")
	page := html.UnescapeString(w.Body.String())
	code := useCode.FindString(page)
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" || code == "" {
		t.Fatalf("status %d, code %q: %s", w.Code, code, page)
	}
	has(t, page, "Set up Claude Code", "curl -fsSL https://gw.example.com/console/use.sh | sh -s -- claude "+code,
		"use.ps1'))) 'claude' '"+code+"'", "connector use --gateway https://gw.example.com claude "+code)
	has(t, page, "65536 is a guess")
	lacks(t, page, "has no connectors", "--ca root.crt")
	if len(g.store.Keys(store.DefaultAccount)) != 0 {
		t.Error("there is a key before the trade")
	}

	var traded clients.Traded
	w = g.trade(`{"code":"` + code + `","client":"claude","machine":"laptop"}`)
	if err := json.Unmarshal(w.Body.Bytes(), &traded); err != nil || w.Code != http.StatusOK ||
		w.Header().Get("Cache-Control") != "no-store" || traded.KeyName != "ada laptop claude" ||
		traded.Model != "qwen3:8b" || traded.Base != "https://gw.example.com" {
		t.Fatalf("status %d, %s", w.Code, w.Body)
	}
	if live, ok := g.store.FindKey(traded.Key); !ok || live.Key().Limits.RequestsPerMinute != 60 ||
		live.Key().ExpiresAt == nil || live.Key().Scope != "qwen*" {
		t.Error("the key is not that of the form")
	}
	has(t, g.page("/console/keys"), "ada laptop claude")
	has(t, g.page("/console/audit"), "setup.use", "ada laptop claude")

	for scope, text := range map[string]string{
		"llama*": "Choose a model that the key may use.", "a,": "pattern is empty", "": "* allows all",
	} {
		w := g.post("/console/keys/setup", "client", "codex", "default_model", "qwen3:8b", "scope", scope)
		g.refused(w, http.StatusBadRequest, "")
		has(t, w.Body.String(), text, `<option value="codex" selected>`)
	}
}

// Models whose context window is too small for a client come last, with a warning before and after the choice.
func TestClientSetupWindows(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.lines.connect(con, "a-small", "b-middle", "large", "unknown")
	for name, window := range map[string]int{"a-small": 8192, "b-middle": 20000, "large": 65536, "unknown": 0} {
		must(t, errOf(g.store.SetDeployment(t.Context(), store.Deployment{
			Account: store0, Name: name, Connectors: []string{con.ID}, Options: compat.Options{ContextWindow: window},
		})))
	}
	form := g.page("/console/keys/setup")
	_, models, _ := strings.Cut(form, `<select id="default_model"`)
	var order []string
	for _, m := range regexp.MustCompile(`<option value="([^"]*)"`).FindAllStringSubmatch(models, 4) {
		order = append(order, m[1])
	}
	if got := strings.Join(order, " "); got != "large unknown b-middle a-small" {
		t.Errorf("the order is %s", got)
	}
	has(t, form, ">a-small (window too small for Claude Code: 8k of 32k)<",
		">b-middle (window too small for Claude Code: 19k of 32k)<", ">large<", ">unknown<")
	for model, want := range map[string]bool{"a-small": true, "large": false} {
		w := g.post("/console/keys/setup", "client", "claude", "default_model", model, "scope", "*")
		if strings.Contains(w.Body.String(),
			"The context window of a-small is too small for Claude Code: 8k of 32k tokens.") != want {
			t.Errorf("%s: %s", model, mainPart(w.Body.String()))
		}
	}
}

// Trades that are refused.
func TestRefusedTrades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		for body, want := range map[string]int{
			`{"code":"USE-0000-0000","client":"claude","machine":"x"}`: http.StatusNotFound,
			`{"code":"","client":"claude"}`:                            http.StatusNotFound,
			`{"code":"USE-0000-0001","client":"none"}`:                 http.StatusBadRequest,
			`{"code":1}`: http.StatusBadRequest,
			`code`:       http.StatusBadRequest,
			``:           http.StatusBadRequest,
			`{"machine":"` + strings.Repeat("x", 4<<10) + `"}`: http.StatusBadRequest,
		} {
			w := g.trade(body)
			var answer map[string]string
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != want || answer["error"] == "" {
				t.Errorf("%.60s: status %d, not %d; %s", body, w.Code, want, w.Body)
			}
		}
		codes := map[int]int{}
		for i := range 8 {
			w := g.trade(fmt.Sprintf(`{"code":"USE-0000-000%d","client":"claude"}`, i))
			if codes[w.Code]++; w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
		if codes[http.StatusTooManyRequests] == 0 || codes[http.StatusNotFound] == 0 {
			t.Errorf("statuses %v", codes)
		}
		g.refused(g.get("/console/use"), http.StatusMethodNotAllowed, "")
	})
}

// Members set up clients of their own. Admins set up those of others.
func TestClientSetupRoles(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.removeDownloads()
	h.user(store0, "ada")
	mia, member := h.ofRole(store.RoleMember)
	_, admin := h.ofRole(store.RoleAdmin)
	con, _, err := h.store.CreateConnector(t.Context(), store0, "box")
	must(t, err)
	must(t, errOf(h.store.SetDeployment(t.Context(), store.Deployment{
		Account: store0, Name: "qwen3", Connectors: []string{con.ID},
	})))
	form := member.get("/console/keys/setup").Body.String()
	has(t, form, "qwen3")
	lacks(t, form, `id="owner"`, `id="requests_per_minute"`)
	has(t, admin.get("/console/settings").Body.String(), `href="/console/keys/setup?owner=`+mia.ID)
	has(t, admin.get("/console/keys/setup?owner="+mia.ID).Body.String(), `<option value="`+mia.ID+`" selected>`)
	caller := manage.Caller{Account: store0, User: mia.ID, Name: mia.Name}
	made, err := h.service.CreateSetup(manage.WithCaller(t.Context(), caller),
		func(c *manage.CreateSetup) error { c.Client = "claude"; return nil })
	if err != nil || made.Commands.Shell != "" {
		t.Errorf("created %+v, %v", made, err)
	}
}
