package console

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
)

var keyPattern = regexp.MustCompile(`sk-svc-[0-9A-Za-z_]{40,}`)

func TestKeyCreate(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/keys"), "No keys yet", `href="/console/keys/new"`)
	con := g.connector("gpu-box")
	g.deployment("qwen3-embed", con)
	g.deployment("qwen3:8b", con)
	g.deployment("llama3", con)
	has(t, g.page("/console/keys/new"), `value="*"`, "3 models match", "shown once")

	w := g.post("/console/keys", "name", "laptop", "scope", "qwen*")
	page := w.Body.String()
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("status %d, Cache-Control %q", w.Code, w.Header().Get("Cache-Control"))
	}
	secret := keyPattern.FindString(page)
	if live, ok := g.store.FindKey(secret); !ok || live.Revoked() {
		t.Fatalf("the page shows %q, which is no key", secret)
	}
	has(t, page, "Use it with qwen3:8b", "ANTHROPIC_AUTH_TOKEN="+secret, "POSTERN_API_KEY="+secret, `data-copy="new-key"`)
	lacks(t, page, keyPlaceholder)

	list := g.page("/console/keys")
	has(t, list, "laptop", "qwen*", "never", "Revoke")
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
		{"unprintable name", "a\x01b", "*", []string{"cannot be printed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := g.post("/console/keys", "name", tt.key, "scope", tt.scope)
			if w.Code != http.StatusBadRequest {
				t.Errorf("status %d, want 400", w.Code)
			}
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
	k, secret, err := g.store.CreateKey(t.Context(), store.DefaultAccount, mean, "*")
	if err != nil {
		t.Fatal(err)
	}
	path := "/console/keys/" + k.ID + "/revoke"
	plain(t, g.page("/console/keys"))
	plain(t, g.page(path))
	if live, ok := g.store.FindKey(secret); !ok || live.Revoked() {
		t.Fatal("asking revoked it")
	}
	g.moved(g.post(path), "/console/keys")
	if live, ok := g.store.FindKey(secret); ok && !live.Revoked() {
		t.Error("the page reports the key as revoked, but it works")
	}
	page := g.page("/console/keys")
	has(t, page, "is revoked", "Revoked keys (1)")
	lacks(t, mainOf(page), "<table")
	plain(t, g.page("/console/keys?show=revoked"))
	lacks(t, mainOf(g.page("/console/keys?show=revoked")), path)
	if w := g.get(path); w.Code != http.StatusNotFound {
		t.Errorf("asking again: status %d, want 404", w.Code)
	}
}

func TestKeysOfAnotherAccount(t *testing.T) {
	g := newGateway(t)
	k, secret, err := g.store.CreateKey(t.Context(), store.DefaultAccount, "laptop", "*")
	if err != nil {
		t.Fatal(err)
	}
	g.deployment("qwen3", g.connector("gpu-box"))
	if _, err := g.store.CreateAccount(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	g.signInAs("other", "eve")
	lacks(t, mainOf(g.page("/console/keys")), "laptop")
	lacks(t, g.page("/console/keys/preview?scope=*"), "qwen3")
	if w := g.post("/console/keys/" + k.ID + "/revoke"); w.Code != http.StatusNotFound {
		t.Errorf("revoking: status %d, want 404", w.Code)
	}
	if live, ok := g.store.FindKey(secret); !ok || live.Revoked() {
		t.Error("it was revoked")
	}
}

func TestKeysSearchKeepsTheList(t *testing.T) {
	g := newGateway(t)
	for range 12 {
		k, _, err := g.store.CreateKey(t.Context(), store.DefaultAccount, "old", "*")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.store.RevokeKey(t.Context(), store.DefaultAccount, k.ID); err != nil {
			t.Fatal(err)
		}
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
	k, _, err := h.store.CreateKey(t.Context(), store0, "laptop", "*")
	if err != nil {
		t.Fatal(err)
	}
	path := "/console/keys/" + k.ID
	b.refused(b.post(path+"/remove"), http.StatusNotFound, "This revoked key no longer exists.")
	b.goes(b.post(path+"/revoke"), "/console/keys")
	has(t, b.page("/console/keys"), "laptop is revoked; its running requests were stopped.")
	b.goes(b.post(path+"/revoke"), "/console/keys")
	has(t, b.page("/console/keys"), "laptop was revoked already.")
	has(t, b.page("/console/keys?show=revoked"), `action="`+path+`/remove"`)
	b.goes(b.post(path+"/remove"), "/console/keys?show=revoked")
	has(t, b.page("/console/keys?show=revoked"), "laptop is removed", "No key is revoked.")
}
