package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// A session of a silent sign-in is not confirmed. The issuer confirms it only with a new sign-in of the same person.
func TestIssuerConfirms(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := o.browser()
	o.fake.Claims = map[string]any{"groups": []string{"ml-admins"}}
	b.goes(b.visit(startPath), "/console/")
	token := func() *httptest.ResponseRecorder {
		return b.request(http.MethodPost, "/console/settings/tokens", encode("name", "script", "right", "read", "days", "7"),
			func(r *http.Request) { r.Header.Set("Referer", base+"/console/settings") })
	}
	w := token()
	b.refused(w, http.StatusForbidden, "Confirm with company")
	lacks(t, w.Body.String(), `type="password"`) // the user has none
	has(t, w.Body.String(), startPath+"?for=confirm&amp;next=%2fconsole%2fsettings")
	confirm := startPath + "?for=confirm&next=/console/settings"
	for name, c := range map[string]struct {
		claims map[string]any
		text   string
	}{
		"old":  {map[string]any{"auth_time": time.Now().Add(-2 * time.Minute).Unix()}, "confirms nothing"},
		"none": {map[string]any{}, "confirms nothing"},
		"sub":  {map[string]any{"auth_time": time.Now().Unix(), "sub": "8"}, "another person"},
	} {
		o.fake.Claims = c.claims
		o.fake.Claims["groups"] = []string{"ml-admins"}
		b.refused(b.visit(confirm), http.StatusForbidden, c.text)
		b.refused(token(), http.StatusForbidden, "Confirm with company")
		if _, ok := o.store.FindIdentity(o.fake.URL, "8"); ok {
			t.Errorf("%s: there is a user", name)
		}
	}
	o.fake.Claims = map[string]any{"auth_time": time.Now().Unix(), "groups": []string{"ml-admins"}}
	b.goes(b.visit(confirm), "/console/settings")
	if w := token(); w.Code != http.StatusOK {
		t.Errorf("%d: %s", w.Code, mainPart(w.Body.String()))
	}
	// A session of another browser cannot be confirmed with this one's flow.
	back := b.leave(confirm)
	b.goes(b.visit(startPath), "/console/")
	b.refused(b.get(back), http.StatusBadRequest, "another sign-in")

	// A person who is no longer an admin confirms as a member.
	o.user(store0, "ada")
	o.fake.Claims["groups"] = []string{"team"}
	b.goes(b.visit(confirm), "/console/settings")
	b.is("ann", store.RoleMember)
	o.fake.Claims["groups"] = []string{"other"}
	o.refusedWithTitle(b.visit(confirm), http.StatusForbidden, "You have no role here")
	b.goes(b.get("/console/keys"), "/console/sign-in?next=%2Fconsole%2Fkeys")
}

// A user links an identity after a confirmation and a question.
func TestIssuerLink(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	ada := o.user(store0, "ada")
	b, elsewhere := o.in(ada), o.in(ada)
	link := startPath + "?for=link"
	has(t, b.page("/console/settings"), link)
	o.pass(10 * time.Minute)
	b.goes(b.get(link), "/console/confirm?next=/console/settings")
	b.goes(b.post("/console/confirm", "next", "/console/settings", "confirm-password", password), "/console/settings")
	w := b.visit(link)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, mainPart(w.Body.String()))
	}
	has(t, w.Body.String(), "<strong>ann</strong>", ">7<", "<strong>ada</strong>")
	if len(o.store.Identities(ada.ID)) != 0 {
		t.Fatal("it is linked before the question")
	}
	_, sealed, _ := strings.Cut(w.Body.String(), `name="identity" value="`)
	sealed, _, _ = strings.Cut(sealed, `"`)
	other := o.in(o.user(store0, "eve"))
	other.refused(other.post("/console/settings/identities", "identity", sealed), http.StatusBadRequest, "link the id")
	b.goes(b.post("/console/settings/identities", "identity", sealed), "/console/settings")
	has(t, b.page("/console/settings"), "The identity is linked", o.fake.URL, "Unlink 7 of")
	if elsewhere.get("/console/settings").Code != http.StatusSeeOther {
		t.Error("the other session goes on")
	}
	if got := b.page("/console/audit"); !strings.Contains(got, "linked") {
		t.Errorf("the audit log: %s", mainPart(got))
	}
	out := o.browser()
	out.goes(out.visit(startPath), "/console/")
	out.is("ada", store.RoleMember)

	// The identity of another user is refused, without a name.
	w = other.visit(link)
	_, sealed, _ = strings.Cut(w.Body.String(), `name="identity" value="`)
	sealed, _, _ = strings.Cut(sealed, `"`)
	w = other.post("/console/settings/identities", "identity", sealed)
	other.refused(w, http.StatusConflict, "Another user signs in with this identity: unlink it there first.</p>")

	// Without a password, the last way in stays.
	o.fake.Claims = map[string]any{
		"sub": "9", "preferred_username": "bob", "auth_time": time.Now().Add(10 * time.Minute).Unix(),
	}
	bob := o.browser()
	bob.goes(bob.visit(startPath), "/console/")
	lacks(t, bob.page("/console/settings"), "Change the password")
	bob.refused(bob.post("/console/settings/identities/unlink", "issuer", o.fake.URL, "subject", "9"), http.StatusConflict,
		"could no longer sign in")
	b.goes(b.post("/console/settings/identities/unlink", "issuer", o.fake.URL, "subject", "7"), "/console/settings")
	lacks(t, b.page("/console/settings"), "Unlink 7 of")
}

// With local off, only issuers sign people in, and links of the operator for an hour.
func TestLocalOff(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.fake.Claims = map[string]any{"groups": []string{"ml-admins"}, "auth_time": time.Now().Unix()}
	ada := o.user(store0, "ada")
	before, b := o.in(ada), o.browser()
	b.goes(b.visit(startPath), "/console/")
	o.configure(true, o.issuer)
	before.goes(before.get("/console/keys"), "/console/sign-in?next=%2Fconsole%2Fkeys")
	out := o.browser()
	page := out.page("/console/sign-in")
	has(t, page, "Sign in with company")
	lacks(t, page, `type="password"`, "data-passkey", "Forgot")
	out.refused(out.post("/console/sign-in", "name", "ada", "password", password), http.StatusConflict, "switched off")
	lacks(t, b.page("/console/settings"), "Invite someone", "Reset link", "Change the password")
	b.refused(b.post("/console/settings/invitations", "role", "member"), http.StatusConflict, "switched off")
	b.refused(b.post("/console/settings/users/"+ada.ID+"/recovery-link"), http.StatusConflict, "switched off")
	o.pass(6 * time.Minute)
	w := b.post("/console/settings/tokens", "name", "script", "right", "read", "days", "7")
	b.refused(w, http.StatusForbidden, "Confirm with company")
	lacks(t, w.Body.String(), `type="password"`)

	_, secret, err := o.signIn.CreateLink(t.Context(), store.Link{
		Kind: store.LinkRecovery, Account: store0, User: "ada", CreatedBy: "the operator",
	})
	must(t, err)
	page = out.page("/console/recover")
	lacks(t, page, `type="password"`)
	out.goes(out.post("/console/recover", "link", secret), "/console/")
	out.is("ada", store.RoleAdmin)
	o.browser().refused(o.browser().post("/console/recover", "link", secret), http.StatusBadRequest, "does not work")
	o.pass(61 * time.Minute)
	out.goes(out.get("/console/keys"), "/console/sign-in?next=%2Fconsole%2Fkeys")
	o.configure(false, o.issuer)
	out.goes(out.post("/console/sign-in", "name", "ada", "password", password), "/console/") // it has not changed
}
