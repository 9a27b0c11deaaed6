package console

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

const store0 = store.DefaultAccount

// Every response has the security headers.
func TestHeaders(t *testing.T) {
	h := newHouse(t)
	in, out := h.in(h.user(store0, "ada")), h.browser()
	for _, w := range []*httptest.ResponseRecorder{
		in.get("/console/"), in.get("/console/settings"), in.get("/console/nowhere"), in.post("/console/settings/password"),
		in.get("/console/api/keys"),
		in.request(http.MethodHead, "/console/events/keys", ""), in.request(http.MethodDelete, "/console/keys", ""),
		out.get("/console"), out.get("/console/sign-in"), out.get("/console/keys"), out.get("/console/api/keys"),
		out.get("/console/static/x/y"),
		out.post("/console/sign-in", "name", "x", "password", "y"), out.get("/console/sign-in?a=%zz"),
		out.request(http.MethodPost, "/console/sign-in", "",
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }),
	} {
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src " +
				"'self'; " +
				"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control": "no-store", "Strict-Transport-Security": "max-age=31536000",
		} {
			if got := w.Header().Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("status %d: %s is %q", w.Code, name, got)
			}
		}
	}
}

// unsafe returns all forms of the console and the API.
var unsafe = []string{
	"/console/sign-in", "/console/sign-in/passkey", "/console/sign-in/passkey/begin", "/console/sign-out",
	"/console/setup", "/console/join", "/console/recover",
	"/console/start/pairing", "/console/start/register", "/console/pairings/x/approve", "/console/pairings/x/deny",
	"/console/models", "/console/models/test", "/console/models/play",
	"/console/models/remove", "/console/keys", "/console/keys/x/revoke", "/console/keys/x/remove", "/console/connectors",
	"/console/connectors/x/remove", "/console/connectors/x/rotate",
	"/console/settings/password", "/console/settings/passkeys", "/console/settings/passkeys/begin",
	"/console/settings/passkeys/x/remove",
	"/console/settings/sessions/x/end", "/console/settings/sessions/end-others", "/console/settings/invitations",
	"/console/settings/invitations/x/revoke",
	"/console/settings/users/x/remove", "/console/settings/users/x/recovery-link", "/console/settings/tokens",
	"/console/settings/tokens/x/revoke",
	"/console/confirm", "/console/confirm/passkey", "/console/confirm/passkey/begin",
	"/console/api/keys", "/console/api/pairings",
}

// Other sites cannot send unsafe requests, in old and new browsers.
func TestCrossSiteRequestForgery(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	forgeries := map[string]func(*http.Request){
		"cross-site": func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Origin", "https://evil.example.com")
		},
		"a sibling of the host": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an older browser": func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "https://evil.example.com")
		},
		"another port": func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "https://gw.example.com:8443")
		},
		"a sandboxed frame": func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "null")
		},
		// An invalid token must not fall back to the session.
		"with a token": func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Authorization", "Bearer pmt_x")
		},
	}
	for _, path := range unsafe {
		if w := b.post(path); w.Code == http.StatusMethodNotAllowed || strings.Contains(w.Body.String(), "Page not found.") {
			t.Errorf("POST %s: the form no longer exists: %d", path, w.Code)
		}
	}
	b = h.in(h.user(store0, "grace")) // ada has signed out
	before := len(h.store.Sessions(b.userID()))
	for _, path := range unsafe {
		for kind, forge := range forgeries {
			w := b.request(http.MethodPost, path, encode("name", "forged", "scope", "*"), forge)
			if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "another site") {
				t.Errorf("POST %s, %s: status %d", path, kind, w.Code)
			}
		}
	}
	if keys := h.store.Keys(store0); len(keys) != 0 {
		t.Errorf("forged: %v", keys)
	}
	// Any client can send these: the log samples and shortens them.
	h.pass(time.Minute)
	before0 := len(h.logged())
	b.request(http.MethodPost, "/console/"+strings.Repeat("x", 10_000), "", forgeries["cross-site"])
	refused := len(unsafe) * len(forgeries)
	if n, lines := len(h.logged())-before0, strings.Count(h.logged(), "another origin"); n > 500 || lines == 0 ||
		lines > refused/4 {
		t.Errorf("a refusal of a long path has %d bytes in the log; %d refusals have %d lines", n, refused, lines)
	}
	if n := len(h.store.Sessions(b.userID())); n != before {
		t.Errorf("there are %d sessions, were %d", n, before)
	}
}

// userID returns the user of the browser's session.
func (b *browser) userID() string {
	b.Helper()
	session, ok := b.store.FindSession(b.cookies["__Host-postern"].Value)
	if !ok {
		b.Fatal("the browser has no session")
	}
	return session.User
}

// Requests with a token but no cookie are allowed from any origin.
func TestProgramsAreFromNoSite(t *testing.T) {
	h := newHouse(t)
	u := h.user(store0, "ada")
	_, secret, err := h.store.CreateToken(t.Context(),
		store.Token{Account: store0, User: u.ID, Name: "script", Rights: store.AllRights})
	must(t, err)
	program := func(token string) *httptest.ResponseRecorder {
		return h.browser().request(http.MethodPost, "/console/api/keys", `{"name":"`+rand.Text()+`","scope":"*"}`,
			func(r *http.Request) {
				r.Header = http.Header{
					"Authorization": {token}, "Content-Type": {"application/json"},
					"Origin": {"https://app.example.org"},
				}
			})
	}
	if w := program("Bearer " + secret); w.Code != http.StatusCreated || len(h.store.Keys(store0)) != 1 {
		t.Errorf("with a token: %d %s", w.Code, w.Body)
	}
	if w := program("bearer " + secret); w.Code != http.StatusCreated {
		t.Errorf("the scheme is case-insensitive (RFC 9110, section 11.1): %d", w.Code)
	}
	for _, token := range []string{"Bearer pmt_wrong", "Bearer ", "Bearer " + secret + "x"} {
		w := program(token)
		var answer struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusUnauthorized ||
			!strings.Contains(answer.Error, "revoked") || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("with %.12s: %d %s", token, w.Code, w.Body)
		}
	}
	if w := program("Basic YTpi"); w.Code != http.StatusForbidden {
		t.Errorf("without a token, from another site: %d", w.Code)
	}
	must(t, h.store.RemoveToken(t.Context(), store0, h.store.Tokens(store0)[0].ID))
	if w := program("Bearer " + secret); w.Code != http.StatusUnauthorized {
		t.Errorf("with a revoked token: %d", w.Code)
	}
}

// The API serves a session its account only, and refuses others in JSON.
func TestAPI(t *testing.T) {
	h := newHouse(t)
	must(t, errOf(h.store.CreateAccount(t.Context(), "lab")))
	ada, eve := h.in(h.user(store0, "ada")), h.in(h.user("lab", "eve"))
	must(t, errOf(h.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "adas-key", Scope: "*"})))
	if w := ada.get("/console/api/keys"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "adas-key") {
		t.Errorf("own account: %d %s", w.Code, w.Body)
	}
	if w := eve.get("/console/api/keys"); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "adas-key") {
		t.Errorf("another account: %d %s", w.Code, w.Body)
	}
	if w := eve.get("/console/api/keys?account=default"); w.Code != http.StatusNotFound ||
		strings.Contains(w.Body.String(), "adas-key") {
		t.Errorf("another account by name: %d %s", w.Code, w.Body)
	}
	w := h.browser().get("/console/api/keys")
	var answer struct{ Error string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusUnauthorized ||
		!strings.Contains(answer.Error, "Bearer pmt_") {
		t.Errorf("without a session: %d %s", w.Code, w.Body)
	}
	if w := ada.get("/console/api/nothing"); w.Code != http.StatusNotFound ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("an unknown path: %d %s", w.Code, w.Body)
	}
	// A token takes precedence over a session.
	w = ada.request(http.MethodGet, "/console/api/keys", "",
		func(r *http.Request) { r.Header.Set("Authorization", "Bearer pmt_x") })
	if w.Code != http.StatusUnauthorized {
		t.Errorf("a wrong token in addition to a session: %d", w.Code)
	}
}

func TestCookie(t *testing.T) {
	h := newHouse(t)
	h.user(store0, "ada")
	for _, plain := range []bool{false, true} {
		b := h.browser()
		b.plain = plain
		b.goes(b.post("/console/sign-in", "name", "ADA ", "password", password), "/console/")
		name := "__Host-postern"
		if plain {
			name = "postern"
		}
		c := b.cookies[name]
		if c == nil {
			t.Fatalf("plain %v: the cookies are %v", plain, b.cookies)
		}
		if c.Path != "/" || c.Domain != "" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure == plain {
			t.Errorf("plain %v: the cookie is %v", plain, c)
		}
		if left := c.Expires.Sub(h.now()); left < store.SessionLife-time.Minute || left > store.SessionLife {
			t.Errorf("plain %v: the cookie lasts %v", plain, left)
		}
		b.page("/console/settings")
	}
	// A proxy may terminate TLS; the browser sends the scheme.
	b := h.browser()
	b.plain = true
	for origin, want := range map[string]bool{"https://gw.example.com": true, "http://gw.example.com": false} {
		w := b.request(http.MethodPost, "/console/sign-in", encode("name", "ada", "password", password),
			func(r *http.Request) {
				r.Header.Set("Origin", origin)
			})
		if cookies := w.Result().Cookies(); len(cookies) != 1 || cookies[0].Secure != want {
			t.Errorf("the cookies for a page of %s are %v", origin, cookies)
		}
	}
	// Over TLS, cookies that a sibling host or a plain page could have set are
	// ignored.
	b = h.in(h.user(store0, "grace"))
	b.cookies["postern"] = &http.Cookie{Name: "postern", Value: b.cookies["__Host-postern"].Value}
	delete(b.cookies, "__Host-postern")
	b.goes(b.get("/console/settings"), "/console/sign-in?next=%2Fconsole%2Fsettings")
}

// Signing in ends the earlier session of the browser, and changes the secret.
func TestSessionFixation(t *testing.T) {
	h := newHouse(t)
	ada, eve := h.user(store0, "ada"), h.user(store0, "eve")
	planted := h.in(eve)
	before := planted.cookies["__Host-postern"].Value
	planted.goes(planted.post("/console/sign-in", "name", "ada", "password", password), "/console/")
	after := planted.cookies["__Host-postern"].Value
	if after == before || planted.userID() != ada.ID {
		t.Error("the session before is used on")
	}
	if _, ok := h.store.FindSession(before); ok {
		t.Error("the session before still works")
	}
	made := h.browser()
	made.cookies["__Host-postern"] = &http.Cookie{
		Name:  "__Host-postern",
		Value: "chosen-by-somebody-else-chosen-by-somebody",
	}
	made.goes(made.post("/console/sign-in", "name", "ada", "password", password), "/console/")
	if made.cookies["__Host-postern"].Value == "chosen-by-somebody-else-chosen-by-somebody" {
		t.Error("the secret is not the gateway's")
	}
}

func TestNext(t *testing.T) {
	for next, want := range map[string]string{
		"/console/keys?q=a&page=2":          "/console/keys?q=a&page=2",
		"/console/models/show?name=org%2Fx": "/console/models/show?name=org%2Fx",
		"":                                  "/console/", "/": "/console/", "/console": "/console/", "keys": "/console/",
		"/consoles/x": "/console/", "/v1/models": "/console/",
		"https://evil.example.com/console/keys": "/console/", "//evil.example.com/console/keys": "/console/",
		"///evil.example.com": "/console/",
		`/\evil.example.com`:  "/console/", `/console/\evil`: "/console/", "\t//evil.example.com": "/console/",
		"/console/\r\nSet-Cookie: a=b": "/console/",
		"javascript:alert(1)":          "/console/", "/console/../v1/models": "/console/", "/console/%2e%2e/v1": "/console/",
		"/console/%zz":      "/console/",
		"/console/api/keys": "/console/", "/console/events/keys": "/console/", "/console/sign-in": "/console/",
		"/console/sign-out":                        "/console/",
		"/console/" + strings.Repeat("x", maxNext): "/console/",
	} {
		if got := localPath(next); got != want {
			t.Errorf("localPath(%q) = %q, want %q", next, got, want)
		}
	}
	h := newHouse(t)
	h.user(store0, "ada")
	for next, want := range map[string]string{
		"/console/keys?q=x":  "/console/keys?q=x",
		"//evil.example.com": "/console/",
	} {
		b := h.browser()
		page := b.page("/console/sign-in?" + url.Values{"next": {next}}.Encode())
		if strings.Contains(page, "evil") {
			t.Error("the form leads away")
		}
		b.goes(b.post("/console/sign-in", "name", "ada", "password", password, "next", next), want)
		b.goes(b.get("/console/sign-in?"+url.Values{"next": {next}}.Encode()), want)
	}
}

func TestForms(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	b.refused(b.post("/console/keys", "name", strings.Repeat("x", maxForm)), http.StatusRequestEntityTooLarge, "too large")
	b.refused(h.browser().post("/console/sign-in", "name", strings.Repeat("x", maxForm)),
		http.StatusRequestEntityTooLarge, "too large")
	b.refused(b.request(http.MethodPost, "/console/sign-in/passkey", `{"ceremony":"`+strings.Repeat("x", maxForm)+`"}`,
		asJSON), http.StatusRequestEntityTooLarge, "too large")
	b.refused(b.request(http.MethodPost, "/console/keys", "name=%zz"), http.StatusBadRequest, "could not be read")
	if n := len(h.store.Keys(store0)); n != 0 {
		t.Errorf("%d keys were created", n)
	}
}

func asJSON(r *http.Request) { r.Header.Set("Content-Type", "application/json") }

func TestUnknownPathsAndMethods(t *testing.T) {
	h := newHouse(t)
	in, out := h.in(h.user(store0, "ada")), h.browser()
	for _, b := range []*browser{in, out} {
		b.refused(b.get("/console/nothing"), http.StatusNotFound, "Page not found.")
		w := b.request(http.MethodDelete, "/console/keys", "",
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") })
		b.refused(w, http.StatusMethodNotAllowed, "does not accept DELETE")
		if w.Header().Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("Allow is %q", w.Header().Get("Allow"))
		}
		if w := b.request(http.MethodGet, "/console/settings/password", ""); w.Code != http.StatusMethodNotAllowed ||
			w.Header().Get("Allow") != "POST" {
			t.Errorf("GET of a form: %d %q", w.Code, w.Header().Get("Allow"))
		}
	}
	if !strings.Contains(in.get("/console/nothing").Body.String(), "Sign out") ||
		strings.Contains(out.get("/console/nothing").Body.String(), "Sign out") {
		t.Error("the page lacks the frame of the current user")
	}
	if w := in.request(http.MethodHead, "/console/settings", ""); w.Code != http.StatusOK ||
		w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
	out.goes(out.get("/console"), "/console/")
	w := in.request(http.MethodGet, "/console/keys/preview/nothing", "",
		func(r *http.Request) { r.Header.Set("HX-Request", "true") })
	if w.Code != http.StatusNotFound || !strings.HasPrefix(w.Body.String(), `<p class="notice`) {
		t.Errorf("htmx gets %d %s", w.Code, w.Body)
	}
}
