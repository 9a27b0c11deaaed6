package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

func newRequest(url string) *http.Request { return httptest.NewRequest(http.MethodPost, url, nil) }

func TestChangePassword(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	b, other := h.in(ada), h.in(ada)
	const new = "another horse battery"
	b.refused(b.post("/console/settings/password", "password", "wrong", "new-password", new), http.StatusForbidden,
		`id="fault">Current password: The current password is wrong.`)
	w := b.post("/console/settings/password", "password", password, "new-password", "short")
	b.refused(w, http.StatusBadRequest, `id="fault">New password: The password is too short`)
	has(t, w.Body.String(), `name="new-password" aria-invalid="true" autofocus`,
		`<details class="card" open><summary>Change the password`)
	b.goes(b.post("/console/settings/password", "password", password, "new-password", new), "/console/settings")
	has(t, b.page("/console/settings"), "The new password is set.")
	lacks(t, b.page("/console/settings"), "The new password is set.")
	other.goes(other.get("/console/settings"), "/console/sign-in?next=%2Fconsole%2Fsettings")
	out := h.browser()
	out.goes(out.post("/console/sign-in", "name", "ada", "password", new), "/console/")
}

func TestOwnSessions(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	b, phone, tablet := h.in(ada), h.in(ada), h.in(ada)
	id := func(b *browser) string {
		s, _ := h.store.FindSession(b.cookies["__Host-postern"].Value)
		return s.ID
	}
	has(t, b.page("/console/settings"), id(phone), id(tablet), "this one")
	b.goes(b.post("/console/settings/sessions/"+id(phone)+"/end"), "/console/settings")
	phone.goes(phone.get("/console/"), "/console/sign-in")
	b.goes(b.post("/console/settings/sessions/end-others"), "/console/settings")
	tablet.goes(tablet.get("/console/"), "/console/sign-in")
	has(t, b.page("/console/settings"), "are signed out: 1.")
	eve := h.in(h.user(store0, "eve"))
	eve.refused(eve.post("/console/settings/sessions/"+id(b)+"/end"), http.StatusNotFound, "You have no session")
	b.goes(b.post("/console/settings/sessions/"+id(b)+"/end"), "/console/sign-in")
	if len(h.store.Sessions(ada.ID)) != 0 || b.cookies["__Host-postern"] != nil {
		t.Error("the current session continues")
	}
}

func TestUsers(t *testing.T) {
	h := newHouse(t)
	ada, grace := h.user(store0, "ada"), h.user(store0, "grace")
	b, hers := h.in(ada), h.in(grace)
	page := b.page("/console/settings")
	has(t, page, "/console/settings/users/"+grace.ID+"/remove")
	lacks(t, page, "/console/settings/users/"+ada.ID+"/remove")
	has(t, b.page("/console/settings/users/"+grace.ID+"/remove"), "Remove grace?",
		`<form method="post">`)
	b.refused(b.post("/console/settings/users/"+ada.ID+"/remove"), http.StatusForbidden, "You cannot remove yourself")
	b.goes(b.post("/console/settings/users/"+grace.ID+"/remove"), "/console/settings")
	hers.goes(hers.get("/console/"), "/console/sign-in")
	b.refused(b.get("/console/settings/users/"+grace.ID+"/remove"), http.StatusNotFound, "This user no longer exists.")
	b.refused(b.post("/console/settings/users/"+grace.ID+"/recovery-link"), http.StatusNotFound,
		"This user no longer exists.")
}

// Admins of the default account test the webhooks, and see their hosts.
func TestWebhooks(t *testing.T) {
	h := newHouse(t)
	must(t, errOf(h.store.CreateAccount(t.Context(), "other")))
	ada := h.user(store0, "ada")
	b, grace, olga := h.in(ada), h.in(h.user(store0, "grace")), h.in(h.user("other", "olga"))
	must(t, errOf(h.store.SetUserRole(t.Context(), store0, h.store.Users(store0)[1].ID, store.RoleViewer)))
	const test = "/console/settings/webhooks/test"
	has(t, b.page("/console/settings"), "No webhooks.", "/events.md#a-webhook")
	b.refused(b.post(test), http.StatusConflict, "The configuration has no webhook")
	var err error
	for _, format := range []string{"slack", "ntfy"} {
		h.webhooks = append(h.webhooks, manage.Webhook{
			Host: format + ".example.com", Format: format, Test: func(context.Context) error { return err },
		})
	}
	has(t, b.page("/console/settings"), "slack.example.com", "Send a test")
	b.goes(b.post(test), "/console/settings")
	has(t, b.page("/console/settings"), "slack.example.com (slack): accepted; ntfy.example.com (ntfy): accepted.")
	err = errors.New("the receiver responded with 404")
	b.refused(b.post(test), http.StatusConflict, "ntfy.example.com (ntfy): failed: the receiver responded with 404.")
	for _, other := range []*browser{grace, olga} {
		lacks(t, other.page("/console/settings"), "Send a test", "slack.example.com", "No webhooks")
		other.refused(other.post(test), http.StatusForbidden, "")
	}
}

func TestTokens(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	b.refused(b.post("/console/settings/tokens", "name", strings.Repeat("n", 200), "right", "read", "days", "0"),
		http.StatusBadRequest, strings.Repeat("n", 200))
	b.refused(b.post("/console/settings/tokens", "name", "deploy", "days", "7"), http.StatusBadRequest,
		"Choose at least one")
	b.refused(b.post("/console/settings/tokens", "name", "deploy", "right", "read", "days", "8"), http.StatusBadRequest,
		"Choose when")
	w := b.post("/console/settings/tokens", "name", "deploy", "right", "read", "days", "7")
	secret := b.secretIn(w.Body.String())
	if !strings.HasPrefix(secret, "pmt_") || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	page := b.page("/console/settings")
	lacks(t, page, secret)
	has(t, page, "<code>"+base+"/console/api</code>", `href="/console/api/openapi.json"`)
	for _, path := range []string{"/console/api/", "/console/api/nothing"} {
		if answer := b.get(path); answer.Code != http.StatusNotFound ||
			!strings.HasPrefix(answer.Body.String(), `{"error":`) {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
	use := func() int {
		return h.browser().request(http.MethodGet, "/console/api/status", "",
			func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) }).Code
	}
	if status := use(); status != http.StatusOK {
		t.Errorf("the token: %d", status)
	}
	path := "/console/settings/tokens/" + h.store.Tokens(store0)[0].ID + "/revoke"
	has(t, b.page(path), "Revoke the token deploy?")
	b.goes(b.post(path), "/console/settings")
	has(t, b.page("/console/settings"), "The management token deploy is revoked.")
	if status := use(); status != http.StatusUnauthorized {
		t.Errorf("the revoked token: %d", status)
	}
	b.refused(b.get(path), http.StatusNotFound, "This management token no longer exists.")
}

// The form offers the rights that the role can use. The token may do what the example does.
func TestRightsOfTokens(t *testing.T) {
	h := newHouse(t)
	ada := h.in(h.user(store0, "ada"))
	_, member := h.ofRole(store.RoleMember)
	page := member.page("/console/settings")
	has(t, page, `value="read"`, `value="keys"`)
	lacks(t, page, `value="connectors"`, `value="deployments"`)
	for right, b := range map[string]*browser{"keys": member, "deployments": ada} {
		w := b.post("/console/settings/tokens", "name", "my-"+right, "right", right, "days", "7")
		has(t, w.Body.String(), "curl "+base+"/console/api/"+right+" -H")
		w = h.browser().request(http.MethodGet, "/console/api/"+right, "",
			func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+b.secretIn(w.Body.String())) })
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", right, w.Code, w.Body)
		}
	}
}

// An expired token is refused with the reason, and is still listed.
func TestTokenEnds(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	secret := b.secretIn(b.post("/console/settings/tokens", "name", "deploy", "right", "read", "days", "7").Body.String())
	h.pass(8 * 24 * time.Hour)
	w := h.browser().request(http.MethodGet, "/console/api/status", "",
		func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) })
	if w.Code != http.StatusUnauthorized ||
		!strings.Contains(w.Body.String(), `The management token \"deploy\" expired on`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	has(t, h.in(h.user(store0, "eve")).page("/console/settings"), "deploy", ">expired<")
}

// The lists show what a token created, and find it by the id, also when the token is revoked.
func TestCreatedByToken(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	b := h.in(ada)
	rights := store.RightKeys | store.RightConnectors | store.RightDeployments
	token, _, err := h.store.CreateToken(t.Context(),
		store.Token{Account: store0, User: ada.ID, Name: "deploy", Rights: rights, Role: store.RoleAdmin})
	must(t, err)
	by := store.WithActor(t.Context(), store.Actor{User: ada.ID, Name: "ada", Token: token.ID, TokenName: "deploy"})
	for ctx, name := range map[context.Context]string{t.Context(): "other", by: "more"} {
		must(t, errOf(h.store.CreateConnector(ctx, store0, name)))
	}
	must(t, errOf(h.store.CreateKey(by, store0, store.KeyFields{Name: "stays<b>", Scope: "*"})))
	must(t, errOf(h.store.SetDeployment(by,
		store.Deployment{Account: store0, Name: "qwen3", Connectors: []string{"other"}})))
	path := "/console/settings/tokens/" + token.ID + "/revoke"
	has(t, b.page(path), `href="/console/keys?q=`+token.ID+`"`, `href="/console/connectors?q=`+token.ID+`"`,
		`href="/console/models?q=`+token.ID+`"`)
	b.goes(b.post(path), "/console/settings")
	for list, name := range map[string]string{"keys": "stays&lt;b&gt;", "connectors": "more", "models": "qwen3"} {
		has(t, b.page("/console/"+list), name, "by ada (token deploy)")
		page := b.page("/console/" + list + "?q=" + token.ID)
		has(t, page, name, "by ada (token deploy)")
		lacks(t, page, "<strong>other</strong>")
	}
}

func TestPasskeyList(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	b, eve := h.in(ada), h.in(h.user(store0, "eve"))
	k := store.Passkey{
		ID: []byte{0xff, 0xfe, 1, 2}, Name: "key on the ring", Credential: json.RawMessage(`{}`),
		CreatedAt: h.now(),
	}
	must(t, h.store.AddPasskey(t.Context(), ada.ID, "c", k))
	path := "/console/settings/passkeys/" + passkeyID(k) + "/remove"
	has(t, b.page("/console/settings"), path, "key on the ring", "never used")
	lacks(t, eve.page("/console/settings"), "key on the ring")
	eve.refused(eve.get(path), http.StatusNotFound, "You no longer have this passkey.")
	eve.refused(eve.post(path), http.StatusNotFound, "You no longer have this passkey.")
	has(t, b.page(path), "Remove the passkey key on the ring?")
	b.goes(b.post(path), "/console/settings")
	if left := h.store.Passkeys(ada.ID); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	b.refused(b.get("/console/settings/passkeys/!/remove"), http.StatusNotFound, "You no longer have this passkey.")
}

func TestBrowserOf(t *testing.T) {
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0": "Firefox on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 " +
			"Edg/140.0": "Edge on Windows",
		"Mozilla/5.0 (Linux; Android 15; Pixel) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 " +
			"Mobile Safari/537.36": "Chrome on Android",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 " +
			"Mobile Safari/604.1": "Safari on iPhone",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 15_0) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 " +
			"Safari/605.1.15": "Safari on macOS",
		"curl/8.14.1": "curl", "": "Unknown browser", "Lynx": "Unknown browser",
	} {
		if got := browserOf(agent); got != want {
			t.Errorf("browserOf(%q) = %q, want %q", agent, got, want)
		}
	}
}

// The page that removes a user lists the user's keys with the use of today, and asks what becomes of them. Later pages
// name the owner.
func TestRemoveUserWithKeys(t *testing.T) {
	g := newGateway(t)
	chen, grace := g.house.user(store0, "chen"), g.house.user(store0, "grace")
	k, _, err := g.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "laptop", Scope: "*", Owner: chen.ID})
	must(t, err)
	g.record(0, activity.Request{KeyID: k.ID, KeyName: k.Name, Status: 200, InputTokens: 1200, OutputTokens: 34})
	page := "/console/settings/users/" + chen.ID + "/remove"
	has(t, g.page(page), "laptop", ">"+count(1234)+"<", `value="revoke" checked`, `value="give"`, `value="keep"`,
		`<option value="`+grace.ID+`"`)
	g.refused(g.post(page), http.StatusConflict, "would keep working")
	g.refused(g.post(page, "keys", "give", "to", "nobody"), http.StatusNotFound, `value="give" checked`)
	g.goes(g.post(page, "keys", "keep"), "/console/settings")
	has(t, g.page("/console/settings"), "chen is removed.")
	for _, at := range []string{"/console/keys", "/console/keys/" + k.ID, "/console/usage?by=user", "/console/activity"} {
		has(t, g.page(at), "chen (removed)")
	}
	g.goes(g.post("/console/keys/"+k.ID, "name", "printer", "scope", "*", "days", "keep", "owner", chen.ID),
		"/console/keys/"+k.ID)
}

// Admins of the default account change its limits in Settings. Others who may see them cannot change them.
func TestAccountLimits(t *testing.T) {
	h := newHouse(t)
	ada := h.in(h.user(store0, "ada"))
	_, viewer := h.ofRole(store.RoleViewer)
	_, member := h.ofRole(store.RoleMember)
	must(t, errOf(h.store.CreateAccount(t.Context(), "lab")))
	lena := h.in(h.user("lab", "lena"))
	const path = "/console/settings/account"
	for name, b := range map[string]*browser{"viewer": viewer, "lena": lena} {
		page := mainOf(b.page("/console/settings"))
		has(t, page, "Limits of the account", `<fieldset class="field" disabled>`, `gateway account set</code>`)
		lacks(t, page, ">Save<")
		if w := b.post(path, "scope", "*", "max_keys", "9"); w.Code != http.StatusForbidden {
			t.Errorf("%s: status %d", name, w.Code)
		}
	}
	lacks(t, member.page("/console/settings"), "Limits of the account")
	if w := member.post(path, "scope", "*"); w.Code != http.StatusForbidden {
		t.Errorf("a member: status %d", w.Code)
	}

	before, _ := h.store.Account(store0)
	form := formOf(t, ada.page("/console/settings"), path)
	save := func(pairs ...string) *httptest.ResponseRecorder {
		for pair := range slices.Chunk(pairs, 2) {
			form.Set(pair[0], pair[1])
		}
		return ada.request(http.MethodPost, path, form.Encode())
	}
	ada.goes(save(), "/console/settings")
	if after, _ := h.store.Account(store0); !reflect.DeepEqual(after.Limits, before.Limits) ||
		!reflect.DeepEqual(after.KeyDefaults, before.KeyDefaults) {
		t.Errorf("saved without a change: %+v, was %+v", after, before)
	}
	ada.goes(save("total_tokens_per_month", "50M", "max_users", "20", "concurrency", "4", "days", "90", "scope", "qwen*",
		"networks", "10.0.0.0/8"), "/console/settings")
	a, _ := h.store.Account(store0)
	if a.Limits.TokensPerMonth != 50_000_000 || a.Limits.MaxUsers != 20 || a.Limits.MaxKeys != 0 ||
		a.KeyDefaults.Limits.Concurrency != 4 || a.KeyDefaults.Limits.TokensPerMonth != 0 ||
		a.KeyDefaults.ExpiresDays != 90 ||
		a.KeyDefaults.Scope != "qwen*" || len(a.KeyDefaults.AllowedIPs) != 1 {
		t.Errorf("saved %+v", a)
	}
	has(t, mainOf(ada.page("/console/settings")), `name="total_tokens_per_month" value="50000000"`,
		"The limits of the account")
	wrong := save("total_tokens_per_day", "many", "max_users", "30")
	has(t, wrong.Body.String(), "Tokens per day: It must be a whole number",
		`name="total_tokens_per_day" aria-invalid="true"`,
		`value="30"`, "<details class=\"card\" open>")
	if wrong.Code != http.StatusBadRequest {
		t.Errorf("a wrong limit: status %d", wrong.Code)
	}
	has(t, save("total_tokens_per_day", "9G").Body.String(), "Tokens per day: ")
}

// Settings show by which issuer users sign in, whose keys stop within a week or have stopped, and the keys that go on
// because they have no owner.
func TestUsersOfIssuers(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	const issuer = "https://id.example.com"
	users := map[string]store.User{}
	policy := store.SignInPolicy{Issuers: []string{issuer}}
	h.store.SetSignInPolicy(policy)
	for _, name := range []string{"bob", "bob"} {
		session, _, _, err := h.store.SignInByIssuer(t.Context(), store.IssuerSignIn{
			Issuer: issuer, Subject: strconv.Itoa(len(users)), Account: store0, Name: name, Role: store.RoleMember,
		})
		must(t, err)
		u, _ := h.store.User(session.User)
		users[u.Name] = u
	}
	_, _, err := h.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "backup job", Scope: "*"})
	must(t, err)
	k, _, err := h.store.CreateKey(t.Context(), store0,
		store.KeyFields{Name: "bob's", Scope: "*", Owner: users["bob-2"].ID})
	must(t, err)
	page := b.page("/console/settings")
	has(t, page, "bob-2", issuer+", signed in")
	lacks(t, page, "keys stop", "backup job")
	for _, row := range []struct {
		need time.Duration
		has  []string
		lack string
	}{
		{8 * 24 * time.Hour, []string{"backup job", "without an owner"}, "keys stop"},
		{24 * time.Hour, []string{"keys stop"}, "keys suspended"},
		{time.Nanosecond, []string{"keys suspended"}, "keys stop"},
	} {
		policy.KeysNeed = row.need
		h.store.SetSignInPolicy(policy)
		wait.Until(t, "the option", func() bool { return !h.store.SuspendedFrom(users["bob"].ID).IsZero() })
		page := b.page("/console/settings")
		has(t, page, row.has...)
		lacks(t, page, row.lack)
	}
	has(t, b.page("/console/keys"), "suspended")
	has(t, b.page("/console/keys/"+k.ID), "its owner must sign in")
}
