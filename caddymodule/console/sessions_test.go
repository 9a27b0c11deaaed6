package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Sessions end by themselves, by their user and with their user.
func TestSessionsEnd(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	b := h.in(ada)
	ended := func(b *browser, why string) {
		t.Helper()
		w := b.get("/console/keys")
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/console/sign-in?next=%2Fconsole%2Fkeys" {
			t.Errorf("%s: %d to %q", why, w.Code, w.Header().Get("Location"))
		}
	}
	b.page("/console/keys")
	h.pass(store.SessionIdle + time.Minute)
	ended(b, "idle")
	if w := b.post("/console/keys", "name", "late", "scope", "*"); w.Code != http.StatusSeeOther ||
		len(h.store.Keys(store0)) != 0 {
		t.Errorf("a form of an ended session: %d", w.Code)
	}

	b = h.in(ada)
	for range 7 * 24 / 8 {
		b.page("/console/keys")
		h.pass(8 * time.Hour)
	}
	ended(b, "after the longest time")

	b = h.in(ada)
	secret := b.cookies["__Host-postern"]
	b.goes(b.post("/console/sign-out"), "/console/sign-in")
	if b.cookies["__Host-postern"] != nil {
		t.Error("the browser keeps the cookie")
	}
	has(t, b.page("/console/sign-in"), "You are signed out.")
	b.cookies["__Host-postern"] = secret
	ended(b, "signed out, with the cookie kept")

	b = h.in(ada)
	must(t, errOf(h.store.RemoveUser(t.Context(), store0, ada.ID)))
	ended(b, "user removed")
	w := b.request(http.MethodGet, "/console/keys/preview?scope=x", "", func(r *http.Request) {
		r.Header.Set("HX-Request", "true")
		r.Header.Set("Referer", base+"/console/keys/new?name=x")
	})
	if w.Code != http.StatusUnauthorized ||
		w.Header().Get("HX-Redirect") != "/console/sign-in?next=%2Fconsole%2Fkeys%2Fnew%3Fname%3Dx" {
		t.Errorf("htmx: %d %q", w.Code, w.Header().Get("HX-Redirect"))
	}
}

// Password guesses are throttled, and the page shows the delay.
func TestThrottledSignIn(t *testing.T) {
	h := newHouse(t)
	const guess = "not quite the horse"
	h.user(store0, "ada")
	b := h.browser()
	for range 5 {
		b.refused(b.post("/console/sign-in", "name", "ada", "password", guess), http.StatusForbidden,
			`id="fault">Wrong name or password.`)
	}
	has(t, b.post("/console/sign-in", "name", "eve", "password", guess).Body.String(),
		`name="password" aria-invalid="true" autofocus`)
	var w *httptest.ResponseRecorder
	for range 3 {
		w = b.post("/console/sign-in", "name", "ada", "password", guess)
	}
	b.refused(w, http.StatusTooManyRequests, "Too many failed attempts")
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	has(t, w.Body.String(), `value="ada"`)
	lacks(t, w.Body.String(), guess)
	if strings.Contains(h.logged(), guess) {
		t.Error("the log has a password")
	}
}
