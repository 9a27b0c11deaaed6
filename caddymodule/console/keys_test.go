package console

import (
	"crypto/rand"
	"html"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

var keyPattern = regexp.MustCompile(`sk-svc-[0-9A-Za-z_]{40,}`)

func TestKeyCreate(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/keys"), "No keys yet", `href="/console/keys/new"`)
	con := g.connector("gpu-box")
	g.goes(g.post("/console/models", "name", "qwen3-bge", "connector", con.ID, "kind", "embeddings"),
		"/console/models/show?name=qwen3-bge")
	g.deployment("qwen3:8b", con)
	g.deployment("llama3", con)
	has(t, g.page("/console/keys/new"), `value="*"`, "3 models match", "shown once")

	w := g.post("/console/keys", "name", "laptop", "scope", "qwen*")
	k := g.store.Keys(store.DefaultAccount)[0]
	created := "/console/keys/" + k.ID + "/created"
	g.goes(w, created)
	held := *g.cookies["__Host-postern-secret"]
	w = g.get(created)
	page := w.Body.String()
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" || !held.HttpOnly ||
		held.SameSite != http.SameSiteLaxMode {
		t.Errorf("status %d, Cache-Control %q, cookie %v", w.Code, w.Header().Get("Cache-Control"), held)
	}
	secret := keyPattern.FindString(page)
	if live, ok := g.store.FindKey(secret); !ok || live.Key().RevokedAt != nil {
		t.Fatalf("the page shows %q, which is no key", secret)
	}
	has(t, page, "Use it with qwen3:8b", "ANTHROPIC_AUTH_TOKEN="+secret,
		"experimental_bearer_token = &#34;"+secret, `data-copy="new-key"`)
	lacks(t, page, "sk-svc-YOUR-KEY")
	// The page can show another model, with the key that it has sent.
	has(t, page, "<option>qwen3-bge</option><option selected>qwen3:8b</option>")
	other := g.post(created, "secret", secret, "model", "qwen3-bge").Body.String()
	has(t, other, "Use it with qwen3-bge", secret, "/v1/embeddings")

	// A reload shows neither the secret again nor another key.
	g.goes(g.get(created), "/console/keys/"+k.ID)
	has(t, g.page("/console/keys/"+k.ID), "A secret is shown once", "rotate the key")
	if n := len(g.store.Keys(store.DefaultAccount)); n != 1 {
		t.Errorf("%d keys", n)
	}
	if strings.Contains(held.Value, secret) {
		t.Error("the cookie contains the secret in plain text")
	}
	// Nor does another session show it, with the cookie.
	g.signInAs(store.DefaultAccount, "bob")
	g.cookies[held.Name] = &held
	g.goes(g.get(created), "/console/keys/"+k.ID)

	list := g.page("/console/keys")
	has(t, list, "laptop", "qwen*", "never", secret[:11]+"…"+secret[46:], "ada")
	lacks(t, list, secret)
}

func TestKeyFaults(t *testing.T) {
	g := newGateway(t)
	for _, tt := range []struct {
		name, key, scope string
		texts            []string
	}{
		{"no name", "", "qwen*", []string{"empty", `value="qwen*"`}},
		{"no scope", "laptop", "", []string{"* allows all", `value="laptop"`}},
		{"blank scope", "laptop", "  ", []string{"* allows all", `value="laptop"`}},
		{"empty pattern", "laptop", "a,,b", []string{"extra comma", `value="laptop"`, `value="a,,b"`}},
		{"hostile scope", "laptop", mean, []string{html.EscapeString("<script>")}},
		{"unprintable name", "a\x01b", "*", []string{"unprintable"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := g.post("/console/keys", "name", tt.key, "scope", tt.scope)
			g.refused(w, http.StatusBadRequest, "")
			has(t, w.Body.String(), tt.texts...)
			lacks(t, w.Body.String(), "<script>alert", "sk-svc-")
		})
	}
	if keys := g.store.Keys(store.DefaultAccount); len(keys) != 0 {
		t.Errorf("created: %+v", keys)
	}
}

func TestKeyPreview(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	for _, r := range "abcdefghijklmnopqrstuvwxyz0123456789" {
		g.deployment("m-"+string(r), con)
	}
	for query, texts := range map[string][]string{
		"m-a":       {"One model matches", "m-a"},
		"m-a,m-b":   {"2 models match", "m-a", "m-b"},
		"*":         {"36 models match", "and 24 more"},
		"none":      {"No model matches now"},
		"a%20b,":    {"notice-bad"},
		"%3Cscript": {"notice-bad", "&lt;script"},
		"":          {"notice-bad"},
	} {
		part := g.page("/console/keys/preview?scope=" + query)
		has(t, part, texts...)
		lacks(t, part, "<html", "<script")
	}
	lacks(t, g.page("/console/keys/preview?scope=m-a"), "m-b")
}

func TestKeyRevoke(t *testing.T) {
	g := newGateway(t)
	k, secret, err := g.store.CreateKey(t.Context(), store.DefaultAccount, store.KeyFields{Name: mean, Scope: "*"})
	must(t, err)
	path := "/console/keys/" + k.ID + "/revoke"
	plain(t, g.page("/console/keys"))
	plain(t, g.page(path))
	if live, ok := g.store.FindKey(secret); !ok || live.Key().RevokedAt != nil {
		t.Fatal("asking revoked it")
	}
	g.goes(g.post(path), "/console/keys")
	if live, ok := g.store.FindKey(secret); ok && live.Key().RevokedAt == nil {
		t.Error("the page reports the key as revoked, but it works")
	}
	page := g.page("/console/keys")
	has(t, page, "is revoked", "Revoked keys (1)")
	lacks(t, mainOf(page), "<table")
	plain(t, g.page("/console/keys?show=revoked"))
	lacks(t, mainOf(g.page("/console/keys?show=revoked")), path)
	g.refused(g.get(path), http.StatusNotFound, "")
}

func TestKeysSearchKeepsTheList(t *testing.T) {
	g := newGateway(t)
	for range 12 {
		k, _, err := g.store.CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: "old " + rand.Text(), Scope: "*"})
		must(t, err)
		must(t, errOf(g.store.RevokeKey(t.Context(), store.DefaultAccount, k.ID)))
	}
	page := mainOf(g.page("/console/keys?show=revoked&q=old"))
	has(t, page, `<input type="hidden" name="show" value="revoked">`)
	if n := strings.Count(page, `data-label="Name"`); n != 12 {
		t.Errorf("%d rows, want 12", n)
	}
}

// A revoked key can be removed from the list, an active one cannot.
func TestRemoveKey(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	k, _, err := h.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "laptop", Scope: "*"})
	must(t, err)
	path := "/console/keys/" + k.ID
	b.refused(b.post(path+"/remove"), http.StatusNotFound, "This revoked key no longer exists.")
	b.goes(b.post(path+"/revoke"), "/console/keys")
	has(t, b.page("/console/keys"), "laptop is revoked; its running requests were stopped.")
	b.goes(b.post(path+"/revoke"), "/console/keys")
	has(t, b.page("/console/keys"), "laptop was revoked already.")
	has(t, b.page("/console/keys?show=revoked"), `action="`+path+`/remove"`)
	b.goes(b.post(path+"/remove"), "/console/keys?show=revoked")
	has(t, b.page("/console/keys?show=revoked"), "laptop is removed", "No revoked keys.")
}

// The page of a key changes it, and keeps what the user typed after an error.
func TestKeyPage(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	b := h.in(ada)
	k, secret, err := h.store.CreateKey(t.Context(), store0, store.KeyFields{Name: mean, Scope: "qwen*", Note: mean})
	must(t, err)
	path := "/console/keys/" + k.ID
	now := func() store.Key { k, _ := h.store.Key(store0, k.ID); return k }
	plain(t, b.page(path))
	has(t, b.page(path), k.Shown, "active", `value="keep" selected`, ">no change<", "<dd>none</dd>")

	form := func(networks string) []string {
		return []string{
			"name", "desk", "scope", "llama*", "days", "30", "owner", ada.ID, "networks", networks, "note",
			"of the desk", "default_model", "llama3",
		}
	}
	b.refused(b.post(path, form("10.0.0.0/33")...), http.StatusBadRequest, "is not an IP address or a network")
	w := b.post(path, form("10.0.0.0/33")...)
	has(t, w.Body.String(), `value="desk"`, `value="llama*"`, `value="10.0.0.0/33"`, `value="30" selected`,
		`value="of the desk"`, `value="llama3"`, html.EscapeString(mean))
	if now().Name != mean {
		t.Error("a refused change took effect")
	}
	b.goes(b.post(path, form("10.0.0.0/8 192.0.2.7")...), path)
	has(t, b.page(path), "desk is changed.", "10.0.0.0/8, 192.0.2.7/32", "of the desk", `<dd>ada</dd>`,
		`<dd class="mono">llama3</dd>`)
	if k := now(); k.Name != "desk" || k.Scope != "llama*" || k.ExpiresAt == nil || k.Owner != ada.ID ||
		len(k.AllowedIPs) != 2 || k.DefaultModel != "llama3" {
		t.Errorf("changed %+v", k)
	}
	ends := *now().ExpiresAt
	b.goes(b.post(path, "name", "desk", "scope", "llama*", "days", "keep", "owner", "", "networks", "", "note", ""), path)
	if k := now(); !k.ExpiresAt.Equal(ends) || k.Owner != "" || k.AllowedIPs != nil || k.Note != "" ||
		k.DefaultModel != "" {
		t.Errorf("changed %+v", k)
	}
	b.goes(b.post(path, "name", "desk", "scope", "llama*", "days", "never"), path)
	if now().ExpiresAt != nil {
		t.Error("it still expires")
	}
	b.goes(b.post(path+"/disable"), path)
	has(t, b.page(path), "desk is disabled; its running requests were stopped.", ">disabled<", path+"/enable")
	has(t, b.page("/console/keys"), ">disabled<")
	b.goes(b.post(path+"/enable"), path)
	has(t, b.page(path), "desk is enabled.", path+"/disable")

	b.goes(b.post(path+"/rotate", "grace", "1h"), path+"/created")
	page := b.page(path + "/created")
	rotated := keyPattern.FindString(page)
	if live, ok := h.store.FindKey(rotated); !ok || live.ID() != k.ID || rotated == secret {
		t.Error("the page shows no new secret")
	}
	has(t, page, "The previous key", k.Shown, "works until")
	b.goes(b.get(path+"/created"), path)
	has(t, b.page(path), "Previous key", k.Shown, "stops working at once")
	b.refused(b.post(path+"/rotate", "grace", "9999h"), http.StatusBadRequest, "0s to 720h")

	b.goes(b.post(path+"/revoke"), "/console/keys")
	page = b.page(path)
	has(t, page, ">revoked<", path+"/remove", "Revoked keys")
	lacks(t, page, path+"/rotate", path+"/disable", "Save")
	b.refused(b.post(path, form("")...), http.StatusConflict, "is revoked, which cannot be undone")
}

// The form of a new key has the defaults of the account, and another user may be its owner.
func TestNewKeyDefaults(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	bob := h.user(store0, "bob")
	_, err := h.store.SetAccount(t.Context(), store0, func(a *store.Account) {
		a.KeyDefaults = store.KeyDefaults{
			Scope: "qwen*", ExpiresDays: 45,
			AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		}
	})
	must(t, err)
	has(t, b.page("/console/keys/new"), `value="qwen*"`, `value="45" selected`, `value="10.0.0.0/8"`, `selected>ada<`)
	w := b.post("/console/keys", "name", "laptop", "scope", "qwen*", "days", "1", "owner", bob.ID, "networks", "")
	k := h.store.Keys(store0)[0]
	b.goes(w, "/console/keys/"+k.ID+"/created")
	if left := time.Until(*k.ExpiresAt); k.Owner != bob.ID || k.AllowedIPs != nil || left > 24*time.Hour ||
		left < 23*time.Hour {
		t.Errorf("created %+v", k)
	}
	b.refused(b.post("/console/keys", "name", "laptop", "scope", "*"), http.StatusConflict,
		"Name: Another key has the name")
}

// TestKeyLimits sets limits on the pages of a key.
func TestKeyLimits(t *testing.T) {
	g := newGateway(t)
	g.deployment("qwen3:8b", g.connector("gpu-box"))
	has(t, g.page("/console/keys/new"), "<summary>Limits</summary>", "Tokens per day", `name="requests_per_minute"`)
	form := []string{
		"name", "laptop", "scope", "*", "requests_per_minute", "60", "tokens_per_day", "2,000,000",
		"tokens_per_month", "1M", "concurrency", "",
	}
	g.post("/console/keys", form...)
	k := g.store.Keys(store.DefaultAccount)[0]
	if want := (limits.UsageLimits{
		RequestsPerMinute: 60, TokensPerDay: 2_000_000,
		TokensPerMonth: 1_000_000,
	}); k.Limits != want {
		t.Errorf("limits %+v, want %+v", k.Limits, want)
	}
	page := g.page("/console/keys/" + k.ID)
	has(t, g.page("/console/keys"), "Requests today", `<meter min="0" max="2000000"`, "0 of 2M tokens/day")
	has(t, page, "<details open>", `name="tokens_per_day" value="2000000"`, "This month")
	w := g.post("/console/keys/"+k.ID, "name", "laptop", "scope", "*", "days", "keep", "requests_per_minute", "many")
	has(t, w.Body.String(), "Requests per minute: It must be a whole number", `value="many"`)
	g.post("/console/keys/"+k.ID, "name", "laptop", "scope", "*", "days", "keep", "requests_per_minute", "",
		"tokens_per_day", "5", "tokens_per_month", "")
	if k := g.store.Keys(store.DefaultAccount)[0]; k.Limits != (limits.UsageLimits{TokensPerDay: 5}) {
		t.Errorf("changed limits %+v", k.Limits)
	}
}

func TestKeyPriority(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/keys/new"), `<select id="priority" name="priority"`, "<option>normal</option>")
	g.post("/console/keys", "name", "batch", "scope", "*", "priority", "low")
	url := "/console/keys/" + g.store.Keys(store.DefaultAccount)[0].ID
	has(t, g.page(url), "<dt>Priority</dt><dd>low</dd>", "<option selected>low</option>")
	has(t, g.page("/console/keys"), "low priority")
	g.post(url, "name", "batch", "scope", "*", "days", "keep", "priority", "normal")
	lacks(t, g.page(url), "<dt>Priority</dt>")
	has(t, g.post(url, "name", "batch", "scope", "*", "days", "keep", "priority", "urgent").Body.String(),
		"must be high, normal or low")
}

// The list shows what each key has used today, and its tightest limit; the page of a key shows its use over time and
// its last requests.
func TestKeyUse(t *testing.T) {
	g := newGateway(t)
	create := func(name string, l limits.UsageLimits) store.Key {
		k, _, err := g.store.CreateKey(t.Context(), store.DefaultAccount,
			store.KeyFields{Name: name, Scope: "*", Limits: l})
		must(t, err)
		return k
	}
	plain := create("plain", limits.UsageLimits{})
	month := create("month", limits.UsageLimits{TokensPerDay: 1_000_000, TokensPerMonth: 2_000})
	create("rate", limits.UsageLimits{RequestsPerMinute: 30, MaxOutputTokens: 100})
	for i, k := range []store.Key{plain, plain, month} {
		g.log.Record(store.DefaultAccount, activity.Request{
			ID: dialect.NewRequestID(), Time: time.Now(), KeyID: k.ID, KeyName: k.Name, Deployment: "qwen3",
			Connector: "con_gone", InputTokens: 700 + i, OutputTokens: 300, BusyMillis: 5, Status: http.StatusOK,
		})
	}
	g.log.Record(store.DefaultAccount, activity.Request{
		ID: "req_failed", Time: time.Now(), KeyID: plain.ID, Deployment: "qwen3", Status: http.StatusBadGateway,
		ErrorClass: activity.UpstreamError, ErrorCode: "upstream", Error: "The model server is <down>.",
	})
	page := mainOf(g.page("/console/keys"))
	since := time.Now().UTC().Format(time.DateOnly) + "T00%3a00%3a00Z"
	has(t, page, `<a href="/console/activity?key=`+plain.ID+`&amp;since=`+since+`">3</a>`, ">2k</td>",
		`max="2000" high="1600" optimum="0" value="1002"`, "1k of 2k tokens/month", ">30 requests/minute<",
		`<span class="muted">none</span>`, ">"+plain.Shown[11:]+"</td>")
	page = mainOf(g.page("/console/keys/" + plain.ID))
	has(t, page, "Last 24 hours", `?range=30d">30 days`, "<figcaption>Tokens</figcaption>", "Last requests",
		`/console/activity?key=`+plain.ID, `/console/models/show?name=qwen3`, "/console/activity/req_failed",
		"The model server is &lt;down&gt;.", "<summary>Change name, scope, limits…</summary>")
	lacks(t, page, ">month<", "<details open>\n  <summary>Change name")
	has(t, mainOf(g.page("/console/keys/"+plain.ID+"?range=30d")), "Last 30 days", `aria-current="true">30 days`)
	page = g.post("/console/keys/"+plain.ID, "name", "plain", "scope", "").Body.String()
	has(t, page, "* allows all", "<details open>\n  <summary>Change name")
	page = mainOf(g.page("/console/keys/" + create("idle", limits.UsageLimits{}).ID))
	has(t, page, "No requests in this period")
	lacks(t, page, "Last requests")
}
