package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// An unconfirmed session cannot create access that outlasts it.
func TestSessionAloneIsNotEnough(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ada, grace := h.user(store0, "ada"), h.user(store0, "grace")
	k := store.Passkey{ID: []byte{1, 2}, Name: "phone", Credential: []byte(`{}`), CreatedAt: h.now()}
	must(t, h.store.AddPasskey(t.Context(), ada.ID, "c", k))
	b := h.in(ada)
	h.pass(6 * time.Minute)
	for path, form := range map[string][]string{
		"/console/settings/passkeys/" + passkeyID(k) + "/remove": nil,
		"/console/settings/users/" + grace.ID + "/recovery-link": nil,
		"/console/settings/users/" + grace.ID + "/remove":        nil, "/console/settings/invitations": nil,
		"/console/settings/tokens": {"name", "deploy", "right", "read", "days", "0"},
	} {
		w := b.post(path, form...)
		b.refused(w, http.StatusForbidden, "Confirm that it is you")
		has(t, w.Body.String(), `action="`+path+`"`, `name="confirm-password"`)
	}
	w := b.request(http.MethodPost, "/console/settings/passkeys/begin", "{}", asJSON)
	b.refused(w, http.StatusForbidden, `"code":"confirmation_required"`)
	has(t, w.Body.String(), "/console/api/sessions/confirm")
	if len(h.store.Users(store0)) != 2 || len(h.store.Links(store0)) != 0 || len(h.store.Tokens(store0)) != 0 ||
		len(h.store.Passkeys(ada.ID)) != 1 {
		t.Error("something has changed")
	}
}

// The confirmation page repeats the original request with its fields, and the user is
// not asked again for five minutes.
func TestConfirm(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	lacks(t, b.page("/console/confirm"), "data-passkey") // the user has none
	h.pass(6 * time.Minute)
	w := b.post("/console/settings/tokens", "name", script, "right", "read", "days", "0")
	b.refused(w, http.StatusForbidden, `<input type="hidden" name="name" value="&#34;&gt;&lt;script&gt;`)
	w = b.post("/console/settings/tokens", "name", "deploy", "right", "read", "days", "0", "confirm-password",
		"wrong password")
	b.refused(w, http.StatusForbidden, `name="confirm-password" aria-invalid="true" autofocus`)
	has(t, w.Body.String(), "The current password is wrong.", `<input type="hidden" name="name" value="deploy">`)
	lacks(t, w.Body.String(), "wrong password")
	w = b.post("/console/settings/tokens", "name", "deploy", "right", "read", "days", "0", "confirm-password", password)
	if w.Code != http.StatusOK || !strings.HasPrefix(b.secretIn(w.Body.String()), "pmt_") {
		t.Fatalf("%d %s", w.Code, mainPart(w.Body.String()))
	}
	if w := b.post("/console/settings/invitations"); w.Code != http.StatusOK {
		t.Errorf("asked again: %d", w.Code)
	}
	h.pass(6 * time.Minute)
	b.refused(b.post("/console/confirm", "next", "/console/settings?passkey=Laptop"), http.StatusForbidden,
		"Confirm that it is you")
	b.goes(b.post("/console/confirm", "next", "/console/settings?passkey=Laptop", "confirm-password", password),
		"/console/settings?passkey=Laptop")
	has(t, b.page("/console/settings?passkey=Laptop"), `value="Laptop"`, "Confirmed.")
	b.goes(b.post("/console/confirm", "next", "https://evil.example.com/"), "/console/")
	if strings.Contains(h.logged(), password) {
		t.Error("the log has a password")
	}
}
