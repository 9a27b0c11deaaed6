package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// script is a name with markup.
const script = `"><script>alert(1)</script>`

// The setup link creates the first user, who invites another one.
func TestFirstUser(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	b.goes(b.get("/console/"), "/console/sign-in")
	b.goes(b.get("/console/sign-in"), "/console/setup")
	has(t, b.page("/console/setup"), "No users yet", "caddy gateway setup-link", `data-fragment`)
	b.refused(b.post("/console/setup", "name", "ada", "password", password, "link", "not-a-secret"),
		http.StatusBadRequest, `name="link" aria-invalid="true" autofocus`)

	_, secret, err := h.signIn.CreateLink(t.Context(), store.Link{Kind: store.LinkSetup, Account: store.DefaultAccount})
	must(t, err)
	link := base + "/console/setup#" + secret
	w := b.post("/console/setup", "name", "ada", "password", "short", "link", link)
	b.refused(w, http.StatusBadRequest, "password")
	has(t, w.Body.String(), `value="ada"`, secret, // the input is kept
		`name="password" aria-invalid="true" autofocus type="password" required autocomplete="new-password" minlength="10" `+
			`maxlength="128" aria-describedby="fault password-hint"`, `id="fault">Password: The password is too short`)
	lacks(t, w.Body.String(), `value="short"`)
	b.goes(b.post("/console/setup", "name", "ada", "password", password, "link", " "+link+" "), "/console/")
	b.goes(b.get("/console/"), "/console/start")
	has(t, b.page("/console/start"), "Sign out", "<strong>ada</strong>")

	late := h.browser()
	late.goes(late.get("/console/setup"), "/console/sign-in")
	has(t, late.page("/console/sign-in"), "has users already")
	late.refused(late.post("/console/setup", "name", "eve", "password", password, "link", link), http.StatusBadRequest,
		"This link does not work")

	page := b.post("/console/settings/invitations")
	if page.Code != http.StatusOK {
		t.Fatalf("inviting: %d", page.Code)
	}
	invitation := b.secretIn(page.Body.String())
	if !strings.HasPrefix(invitation, base+"/console/join#") {
		t.Fatalf("the invitation is %q", invitation)
	}
	_, secret, _ = strings.Cut(invitation, "#")
	has(t, b.page("/console/settings"), "Open invitations")
	lacks(t, b.page("/console/settings"), secret)
	grace := h.browser()
	grace.page("/console/join")
	grace.refused(grace.post("/console/join", "name", "ADA", "password", password, "link", secret),
		http.StatusConflict, "ADA")
	grace.goes(grace.post("/console/join", "name", "grace", "password", password, "link", secret), "/console/")
	has(t, grace.page("/console/settings"), "grace", "(you)", "ada")
	lacks(t, b.page("/console/settings"), "Open invitations")
	if log := h.logged(); strings.Contains(log, secret) || strings.Contains(log, password) {
		t.Error("the log has a secret")
	}
}

func TestRecovery(t *testing.T) {
	h := newHouse(t)
	ada, grace := h.user(store0, "ada"), h.user(store0, "grace")
	b, hers := h.in(ada), h.in(grace)
	w := b.post("/console/settings/users/" + grace.ID + "/recovery-link")
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	link := b.secretIn(w.Body.String())
	out := h.browser()
	lacks(t, out.page("/console/recover"), `name="name"`)
	const new = "another horse battery"
	h.pass(time.Minute)
	out.goes(out.post("/console/recover", "password", new, "link", link), "/console/")
	if out.userID() != grace.ID {
		t.Error("another user is signed in")
	}
	hers.goes(hers.get("/console/keys"), "/console/sign-in?next=%2Fconsole%2Fkeys")
	again := h.browser()
	again.refused(again.post("/console/sign-in", "name", "grace", "password", password), http.StatusForbidden,
		"Wrong name or password.")
	again.goes(again.post("/console/sign-in", "name", "grace", "password", new), "/console/")
	again.refused(again.post("/console/recover", "password", password, "link", link), http.StatusBadRequest,
		"This link does not work")
}

// TestRecoveryEndsWaysIn: the ticked credentials end, and all are ticked by default.
func TestRecoveryEndsWaysIn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ada, grace := h.user(store0, "ada"), h.user(store0, "grace")
	must(t, h.store.AddPasskey(t.Context(), grace.ID, "c",
		store.Passkey{ID: []byte("x"), Name: "phone", Credential: []byte("1")}))
	must(t, errOf(h.store.CreateToken(t.Context(),
		store.Token{Account: store0, User: grace.ID, Name: "ci", Rights: store.AllRights})))
	recover := func() (*browser, string) {
		w := h.in(ada).post("/console/settings/users/" + grace.ID + "/recovery-link")
		return h.browser(), h.in(ada).secretIn(w.Body.String())
	}
	out, link := recover()
	has(t, out.page("/console/recover"), `name="end_passkeys" value="1" checked`, `name="end_tokens" value="1" checked`)
	w := out.post("/console/recover", "password", "short", "link", link, "end_tokens", "1")
	out.refused(w, http.StatusBadRequest, "too short") // the choice stays
	has(t, w.Body.String(), `name="end_tokens" value="1" checked`)
	lacks(t, w.Body.String(), `name="end_passkeys" value="1" checked`)
	out.goes(out.post("/console/recover", "password", "another horse battery", "link", link, "end_tokens", "1"),
		"/console/")
	if p, tokens := h.store.Passkeys(grace.ID), h.store.Tokens(store0); len(p) != 1 || len(tokens) != 0 {
		t.Errorf("left are %d passkeys and %d tokens", len(p), len(tokens))
	}
	out, link = recover()
	out.goes(out.post("/console/recover", "password", "one more horse battery", "link", link, "end_passkeys", "1"),
		"/console/")
	if p := h.store.Passkeys(grace.ID); len(p) != 0 {
		t.Errorf("left are %d passkeys", len(p))
	}
	lacks(t, h.browser().page("/console/join"), "end_passkeys")
}

// Names and addresses are escaped on all pages.
func TestNamesAreText(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	must(t, errOf(h.store.CreateToken(t.Context(),
		store.Token{Account: store0, User: b.userID(), Name: script, Rights: store.AllRights})))
	session, _, err := h.store.CreateSession(t.Context(), b.userID(), script, script, "Firefox/1 Linux "+script)
	must(t, err)
	for _, path := range []string{
		"/console/settings", "/console/settings/tokens/" + h.store.Tokens(store0)[0].ID + "/revoke",
		"/console/nothing/" + "%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
	} {
		page := b.get(path).Body.String()
		if strings.Contains(page, "<script>alert") {
			t.Errorf("GET %s has a foreign script:\n%s", path, mainPart(page))
		}
	}
	has(t, b.page("/console/settings"), "&lt;script&gt;alert(1)&lt;/script&gt;", "Firefox on Linux")
	for path, form := range map[string][]string{
		"/console/settings/tokens": {"name", script + strings.Repeat("x", 200), "right", "read", "days", "0"},
		"/console/sign-in":         {"name", script, "password", script, "next", "/console/" + script},
		"/console/join":            {"name", script, "password", script, "link", script},
		"/console/settings/sessions/" + session.ID + "/nothing": {"name", script},
	} {
		if page := b.post(path, form...).Body.String(); strings.Contains(page, "<script>alert") {
			t.Errorf("POST %s has a foreign script:\n%s", path, mainPart(page))
		}
	}
	part := b.request(http.MethodPost, "/console/settings/sessions/%3Cscript%3Ealert(1)%3C%2Fscript%3E/end", "",
		func(r *http.Request) { r.Header.Set("HX-Request", "true") })
	has(t, part.Body.String(), "&lt;script&gt;")
	lacks(t, part.Body.String(), "<script")
	// A forged notice cookie is shown as text.
	b.cookies["__Host-postern-notice"] = &http.Cookie{
		Name:  "__Host-postern-notice",
		Value: "Ij48c2NyaXB0PmFsZXJ0KDEpPC9zY3JpcHQ-",
	}
	page := b.page("/console/settings")
	has(t, page, "&lt;script&gt;alert(1)")
	lacks(t, page, "<script>alert")
	lacks(t, b.page("/console/keys"), "alert(1)") // once
}

// Passkey requests and their errors are JSON.
func TestPasskeyAnswers(t *testing.T) {
	h := newHouse(t)
	b, out := h.in(h.user(store0, "ada")), h.browser()
	for path, who := range map[string]*browser{"/console/sign-in/passkey": out, "/console/settings/passkeys": b} {
		w := who.request(http.MethodPost, path+"/begin", "{}", asJSON)
		var begun struct {
			Options  struct{ PublicKey struct{ Challenge string } }
			Ceremony string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &begun); err != nil || w.Code != http.StatusOK || begun.Ceremony == "" ||
			begun.Options.PublicKey.Challenge == "" {
			t.Fatalf("%s/begin: %d %s", path, w.Code, w.Body)
		}
		body, _ := json.Marshal(ceremonyAnswer{Ceremony: begun.Ceremony, Response: json.RawMessage(`{"id":"x"}`)})
		w = who.request(http.MethodPost, path, string(body), asJSON)
		var answer struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusBadRequest ||
			!strings.HasSuffix(answer.Error, ".") {
			t.Errorf("%s with nothing: %d %s", path, w.Code, w.Body)
		}
		w = who.request(http.MethodPost, path, "{", asJSON)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "could not be read") {
			t.Errorf("%s with half of something: %d %s", path, w.Code, w.Body)
		}
		who.refused(who.post(path, "ceremony", begun.Ceremony), http.StatusBadRequest, "Passkeys need JavaScript")
	}
	if w := out.request(http.MethodPost, "/console/settings/passkeys/begin", "{}",
		asJSON); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `"error"`) {
		t.Errorf("without a session: %d %s", w.Code, w.Body)
	}
	w := out.request(http.MethodPost, "/console/sign-in/passkey/begin", "{}", asJSON, func(r *http.Request) {
		r.Host = "192.0.2.1"
		r.Header.Set("Origin", "https://192.0.2.1")
	})
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "host name") {
		t.Errorf("at an address: %d %s", w.Code, w.Body)
	}
}

// The browser determines the scheme: a proxy may have terminated TLS.
func TestOrigin(t *testing.T) {
	for _, test := range []struct {
		origin string
		plain  bool
		want   string
	}{
		{"https://gw.example.com", true, "https://gw.example.com"},
		{"https://gw.example.com", false, "https://gw.example.com"},
		{"", false, "https://gw.example.com"},
		{"", true, "http://gw.example.com"},
		{"https://evil.example.com", false, "https://gw.example.com"},
		{"null", true, "http://gw.example.com"},
		{"ftp://gw.example.com", true, "http://gw.example.com"},
	} {
		url := base
		if test.plain {
			url = "http://gw.example.com"
		}
		r := newRequest(url)
		r.Header.Set("Origin", test.origin)
		if got := origin(r); got != test.want {
			t.Errorf("Origin %q, plain %v: %q, want %q", test.origin, test.plain, got, test.want)
		}
	}
}

// Only signed-in users see the version.
func TestFooterTellsVersion(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	footer := `<footer class="colophon">Postern v9.9.10 · <a href="https://`
	if page := h.in(h.user(store.DefaultAccount, "ada")).page("/console/start"); !strings.Contains(page, footer) {
		t.Errorf("no footer on a page: %s", page)
	}
	if page := h.browser().page("/console/sign-in"); strings.Contains(page, "v9.9.10") {
		t.Error("the page without a session shows the version")
	}
}
