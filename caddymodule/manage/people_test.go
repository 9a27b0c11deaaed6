package manage_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

func TestLinks(t *testing.T) {
	g := newGateway(t)
	setup := want[manage.Link](g, 201, "POST", "/setup-link", "{}")
	anna := g.user("default", "anna")
	w := g.do("POST", "/setup-link", "{}")
	if w.Code != 409 {
		t.Errorf("setup link with users: %d", w.Code)
	}
	invitation := wantAs[manage.Link](g, anna, 201, "POST", "/invitations", "{}")
	g.user("default", "bert")
	recovery := wantAs[manage.Link](g, anna, 201, "POST", "/users/BERT/recovery-link", "{}")
	for page, l := range map[string]manage.Link{"setup": setup, "join": invitation, "recover": recovery} {
		secret, ok := strings.CutPrefix(l.URL, "https://gw.example.com/console/"+page+"#")
		if !ok || len(secret) != 43 {
			t.Errorf("%s: URL %q", page, l.URL)
			continue
		}
		found, err := g.store.FindLink(secret)
		if page != "setup" && (err != nil || found.ID != l.ID || found.CreatedBy != "anna") {
			t.Errorf("%s: link %+v, %v", page, found, err)
		}
		if strings.Contains(g.log.String(), secret) {
			t.Errorf("the log has the secret of a link")
		}
	}
	list := wantAs[[]manage.Link](g, anna, 200, "GET", "/invitations", "")
	if len(list) != 1 || list[0].ID != invitation.ID || list[0].URL != "" {
		t.Errorf("invitations = %+v", list)
	}
	wantAs[map[string]any](g, anna, 404, "DELETE", "/invitations/"+recovery.ID, "")
	wantAs[manage.Link](g, anna, 200, "DELETE", "/invitations/"+invitation.ID, "")
	wantAs[map[string]any](g, anna, 404, "DELETE", "/invitations/"+invitation.ID, "")

	g.endpoint.Console = ""
	g.refused(anna, 409, "POST", "/invitations", "{}", "`model_console`")
	if left := g.store.Links("default"); len(left) > 2 {
		t.Errorf("a link was created although its URL is unknown: %+v", left)
	}
}

func TestUsers(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	added := wantAs[manage.User](g, anna, 201, "POST", "/users", `{"name":"bert","password":"correct horse battery"}`)
	if added.Name != "bert" || added.Account != "default" {
		t.Errorf("added = %+v", added)
	}
	w := g.doAs(anna, "POST", "/users", `{"name":"carl","password":"short"}`)
	if w.Code != 400 {
		t.Errorf("short password: %d %s", w.Code, w.Body)
	}
	if text := g.log.String(); strings.Contains(text, "correct horse") || strings.Contains(text, "short") {
		t.Errorf("the log has a password:\n%s", text)
	}
	wantAs[map[string]any](g, anna, 409, "POST", "/users", `{"name":"Bert","password":"correct horse battery"}`)
	if list := wantAs[[]manage.User](g, anna, 200, "GET", "/users", ""); len(list) != 2 {
		t.Errorf("list = %+v", list)
	}
	for _, self := range []string{anna.User, "anna", "ANNA"} {
		w := g.doAs(anna, "DELETE", "/users/"+self, "")
		if w.Code != 403 {
			t.Errorf("removing oneself as %s: %d %s", self, w.Code, w.Body)
		}
		wantError(t, w, "cannot remove yourself")
	}
	if removed := wantAs[manage.User](g, anna, 200, "DELETE", "/users/bert", ""); removed.ID != added.ID {
		t.Errorf("removed = %+v", removed)
	}
	if removed := want[manage.User](g, 200, "DELETE", "/users/anna", ""); removed.ID != anna.User {
		t.Errorf("the operator removed %+v", removed)
	}
	if w := g.doAs(anna, "DELETE", "/users/bert", ""); w.Code < 400 {
		t.Errorf("a removed user removes others: %d", w.Code)
	}
}

// Of two users who remove each other at the same time, one stays.
func TestUsersRemoveEachOther(t *testing.T) {
	g := newGateway(t)
	for range 5 {
		anna, bert := g.user("default", "anna"), g.user("default", "bert")
		var both sync.WaitGroup
		both.Go(func() { g.doAs(anna, "DELETE", "/users/bert", "") })
		both.Go(func() { g.doAs(bert, "DELETE", "/users/anna", "") })
		both.Wait()
		users := g.store.Users("default")
		if len(users) != 1 {
			t.Fatalf("%d users are left", len(users))
		}
		must(t, errOf(g.store.RemoveUser(t.Context(), "default", users[0].ID)))
	}
}

func TestTokens(t *testing.T) {
	g := newGateway(t)
	anna, bert := g.user("default", "anna"), g.user("default", "bert")
	created := wantAs[manage.CreatedToken](g, anna, 201, "POST", "/tokens", `{"name":"ci"}`)
	found, ok := g.store.FindToken(created.Token)
	if !ok || found.User != anna.User || !strings.HasPrefix(created.Token, "pmt_") {
		t.Fatalf("created = %+v, found %+v", created, found)
	}
	byToken := asToken(anna, store.AllRights)
	w := g.doAs(byToken, "POST", "/tokens", `{"name":"more"}`)
	if w.Code != 403 {
		t.Errorf("a token makes tokens: %d", w.Code)
	}
	wantError(t, w, "sign in to the console")
	wantAs[map[string]any](g, anna, 403, "POST", "/tokens", `{"name":"x","user":"bert"}`)
	want[map[string]any](g, 400, "POST", "/tokens", `{"name":"x"}`)
	want[map[string]any](g, 404, "POST", "/tokens", `{"name":"x","user":"nobody"}`)
	if forBert := want[manage.CreatedToken](g, 201, "POST", "/tokens",
		`{"name":"x","user":"bert"}`); forBert.User != bert.User {
		t.Errorf("the operator's = %+v", forBert)
	}
	list := g.doAs(bert, "GET", "/tokens", "").Body.String()
	if strings.Contains(list, created.Token) || !strings.Contains(list, `"user_name":"anna"`) {
		t.Errorf("list = %s", list)
	}
	if revoked := wantAs[manage.Token](g, bert, 200, "DELETE", "/tokens/"+created.ID, ""); revoked.Name != "ci" {
		t.Errorf("revoked = %+v", revoked)
	}
	if _, ok := g.store.FindToken(created.Token); ok {
		t.Error("the token works after its revocation")
	}
	if strings.Contains(g.log.String(), created.Token) {
		t.Error("the log has a token")
	}
}

func TestSessions(t *testing.T) {
	g := newGateway(t)
	anna, bert := g.user("default", "anna"), g.user("default", "bert")
	second, _, err := g.store.CreateSession(t.Context(), anna.User, "passkey", "192.0.2.2", "phone")
	must(t, err)
	list := wantAs[[]manage.Session](g, anna, 200, "GET", "/sessions", "")
	if len(list) != 2 {
		t.Fatalf("list = %+v", list)
	}
	for _, o := range list {
		if o.Current != (o.ID == anna.Session) {
			t.Errorf("current = %v in %+v", o.Current, o)
		}
	}
	// A user cannot end sessions of others in the account.
	wantAs[map[string]any](g, bert, 404, "DELETE", "/sessions/"+second.ID, "")
	wantAs[manage.Session](g, anna, 200, "DELETE", "/sessions/"+second.ID, "")
	wantAs[map[string]any](g, anna, 404, "DELETE", "/sessions/"+second.ID, "")
	must(t, errOf(g.store.CreateSession(t.Context(), anna.User, "password", "192.0.2.2", "phone")))
	if ended := wantAs[map[string]int](g, anna, 200, "DELETE", "/sessions", ""); ended["ended"] != 1 {
		t.Errorf("ended = %v", ended)
	}
	if left := g.store.Sessions(anna.User); len(left) != 1 || left[0].ID != anna.Session {
		t.Errorf("left = %+v", left)
	}
	if len(g.store.Sessions(bert.User)) != 1 {
		t.Error("the sessions of another user ended")
	}
}

func TestAccounts(t *testing.T) {
	g := newGateway(t)
	if a := want[store.Account](g, 201, "POST", "/accounts", `{"id":"research"}`); a.ID != "research" {
		t.Errorf("created = %+v", a)
	}
	want[map[string]any](g, 409, "POST", "/accounts", `{"id":"research"}`)
	want[map[string]any](g, 400, "POST", "/accounts", `{"id":"No!"}`)
	if list := want[[]store.Account](g, 200, "GET", "/accounts", ""); len(list) != 2 {
		t.Errorf("list = %+v", list)
	}
	want[map[string]any](g, 201, "POST", "/keys", `{"name":"k","account":"research"}`)
	want[map[string]any](g, 409, "DELETE", "/accounts/research", "")
	want[map[string]any](g, 404, "DELETE", "/accounts/none", "")
	want[map[string]any](g, 201, "POST", "/accounts", `{"id":"brief"}`)
	want[store.Account](g, 200, "DELETE", "/accounts/brief", "")
	if w := g.do("DELETE", "/accounts/default", ""); w.Code < 400 {
		t.Errorf("the default account is removed: %d", w.Code)
	}
}

func TestChecklist(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	check := func(wanted manage.Checklist) {
		t.Helper()
		if got := wantAs[manage.Checklist](g, anna, 200, "GET", "/checklist", ""); got != wanted {
			t.Errorf("checklist = %+v, want %+v", got, wanted)
		}
	}
	check(manage.Checklist{})
	home := g.connector("default", "home", map[string]http.Handler{"a": models()})
	check(manage.Checklist{Connector: true})
	g.deployment("m", home, "", "")
	check(manage.Checklist{Connector: true, Model: true})
	key := want[map[string]any](g, 201, "POST", "/keys", `{"name":"k"}`)["id"].(string)
	check(manage.Checklist{Connector: true, Model: true, Key: true})
	g.activity.Record("default", activity.Request{ID: "req_1", Time: time.Now(), Status: 200})
	check(manage.Checklist{Connector: true, Model: true, Key: true, Request: true})
	want[map[string]any](g, 200, "DELETE", "/keys/"+key, "")
	check(manage.Checklist{Connector: true, Model: true, Request: true})
}

// Requests are found by names and ids, by members only those of their keys.
func TestFiltersOfActivity(t *testing.T) {
	w := newWorld(t)
	mia := w.as(store.RoleMember)
	own := wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"mias"}`)
	home, _ := w.store.FindConnector("default", "mine-connector")
	now := time.Now()
	for i, r := range []activity.Request{
		{ID: "req_mia", KeyID: own.ID, Deployment: "m", Connector: home.ID},
		{ID: "req_failed", KeyID: w.ids["{key}"], Deployment: "m", ErrorClass: activity.UpstreamError},
		{ID: "req_play", Operation: activity.Playground, Deployment: "n"},
		{ID: "req_gone", KeyID: "key_removed", ErrorClass: activity.PolicyError},
	} {
		r.Time = now.Add(-time.Hour * time.Duration(24*i+1))
		w.activity.Record("default", r)
	}
	for query, expected := range map[string][]string{
		"": {"req_mia", "req_failed", "req_play", "req_gone"}, "?key=mias": {"req_mia"}, "?key=" + own.ID: {"req_mia"},
		"?key=console": {"req_play"}, "?key=key_removed": {"req_gone"}, "?key=none": {}, "?user=mine-member": {"req_mia"},
		"?user=" + mia.User: {"req_mia"}, "?user=nobody": {}, "?user=mine-member&key=mine-key": {},
		"?model=m": {"req_mia", "req_failed"}, "?connector=mine-connector": {"req_mia"}, "?connector=" + home.ID: {"req_mia"},
		"?status=failed": {"req_failed"}, "?status=refused": {"req_gone"}, "?status=client": {}, "?since=24h": {"req_mia"},
		"?since=2d": {"req_mia", "req_failed"}, "?until=2d": {"req_play", "req_gone"}, "?search=_PLA": {"req_play"},
		"?since=" + now.Add(-30*time.Hour).UTC().Format(time.RFC3339) + "&until=2h": {"req_failed"},
	} {
		list := want[manage.Requests](w.gateway, 200, "GET", "/activity"+query, "")
		got := slices.DeleteFunc(ids(list), func(id string) bool { return id == "req_of_default" || id == "req_mine" })
		if !slices.Equal(got, expected) {
			t.Errorf("%s: %q, not %q", query, got, expected)
		}
		visible := slices.DeleteFunc(expected, func(id string) bool { return id != "req_mia" })
		list = wantAs[manage.Requests](w.gateway, mia, 200, "GET", "/activity"+query, "")
		if got := ids(list); !slices.Equal(got, visible) {
			t.Errorf("%s: a member sees %q, not %q", query, got, visible)
		}
	}
	for _, query := range []string{"?since=soon", "?until=1", "?since=1w", "?status=bad", "?limit=1001", "?since=d"} {
		if answer := w.do("GET", "/activity"+query, ""); answer.Code != 400 {
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
	w.refused(mia, 404, "GET", "/activity/req_failed", "", "")
}

func TestScope(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"a": models()})
	for _, name := range []string{"qwen3:8b", "qwen3:32b", "llama"} {
		g.deployment(name, home, "", "")
	}
	for query, n := range map[string]int{
		"": 3, "?scope=*": 3, "?scope=qwen*": 2, "?scope=llama,nothing": 1,
		"?scope=nothing": 0,
	} {
		w := g.do("GET", "/deployments"+query, "")
		var list []manage.Deployment
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != n {
			t.Errorf("%s: %s", query, w.Body)
		}
	}
	for _, query := range []string{"?scope=", "?scope=a,,b", "?scope=%00", "?scope=a&scope=b"} {
		g.refused(operator, 400, "GET", "/deployments"+query, "", "")
	}
}

// Neither an unconfirmed session nor a management token can create access that outlasts it, and even a confirmed
// session cannot create a recovery link for its own user.
func TestSessionAloneIsNotEnough(t *testing.T) {
	w := newWorld(t)
	stale := w.mine
	stale.ConfirmedAt = time.Now().Add(-6 * time.Minute)
	before := w.records()
	for _, route := range []string{
		"POST /users", "DELETE /users/{id}", "POST /users/{id}/recovery-link", "POST /invitations", "POST /tokens",
	} {
		for part, caller := range map[string]manage.Caller{
			`"code":"confirmation_required"`: stale, "management token": asToken(w.mine, store.AllRights),
		} {
			if status, body := w.request(caller, route, ""); status != http.StatusForbidden || !strings.Contains(body, part) {
				t.Errorf("%s: %d %s", route, status, body)
			}
		}
	}
	for name, caller := range map[string]manage.Caller{"stale": stale, "fresh": w.mine} {
		answer := w.doAs(caller, "POST", "/users/"+w.mine.User+"/recovery-link", "{}")
		if answer.Code != http.StatusForbidden {
			t.Errorf("a recovery link for oneself, %s: %d %s", name, answer.Code, answer.Body)
		}
	}
	if after := w.records(); after != before {
		t.Errorf("the account's records have changed:\n%s\nwere\n%s", after, before)
	}
}

func TestConfirmSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // hashing takes no time
		g := newGateway(t)
		anna := g.user("default", "anna")
		time.Sleep(time.Second)
		wantError(t, g.doAs(anna, "POST", "/sessions/confirm", `{"password":"wrong password"}`), "current password is wrong")
		confirmed := wantAs[manage.Session](g, anna, 200, "POST", "/sessions/confirm", `{"password":"`+password+`"}`)
		if found := g.store.Sessions(anna.User)[0]; !found.ConfirmedAt.After(anna.ConfirmedAt) ||
			!found.ConfirmedAt.Equal(confirmed.ConfirmedAt) {
			t.Errorf("confirmed at %v, was %v; the answer says %v", found.ConfirmedAt, anna.ConfirmedAt, confirmed.ConfirmedAt)
		}
		token := asToken(anna, store.AllRights)
		wantError(t, g.doAs(token, "POST", "/sessions/confirm", `{"password":"`+password+`"}`), "management token")
		for range 6 {
			g.doAs(anna, "POST", "/sessions/confirm", `{"password":"wrong password"}`)
		}
		if w := g.doAs(anna, "POST", "/sessions/confirm",
			`{"password":"`+password+`"}`); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("after many failures: %d %v", w.Code, w.Header())
		}
		if strings.Contains(g.log.String(), password) {
			t.Error("the log has a password")
		}
	})
}

// An operator links a person at an issuer to a user, and the audit log says so. The list of users shows the identities.
func TestLinkUser(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	g.store.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}})
	link := `{"issuer":"` + issuer + `","subject":"7c0e"}`
	if w := g.doAs(anna, "POST", "/users/anna/link", link); w.Code != 403 {
		t.Errorf("an admin: %d %s", w.Code, w.Body)
	}
	if u := wantAs[manage.User](g, operator, 200, "POST", "/users/anna/link", link); u.Identities[0].Subject != "7c0e" {
		t.Errorf("linked %+v", u)
	}
	if u := wantAs[[]manage.User](g, anna, 200, "GET", "/users", "")[0]; u.Identities[0].Issuer != issuer {
		t.Errorf("listed %+v", u)
	}
	wantAs[manage.User](g, operator, 200, "POST", "/users/anna/unlink", link)
	for i, want := range []string{
		"root unlinked anna from 7c0e at " + issuer, "root linked anna to 7c0e at " + issuer,
	} {
		if got := entries(t, g, anna)[i].Text; got != want {
			t.Errorf("audit log: %q, want %q", got, want)
		}
	}
	_, _, kept, err := g.store.SignInByIssuer(t.Context(), store.IssuerSignIn{
		Issuer: issuer, Subject: "9", Account: "default", Name: "bert", Role: store.RoleMember,
	})
	if got := entries(t, g, anna)[0].Text; err != nil || kept || got != issuer+" gave bert the role member" {
		t.Errorf("audit log: %q, %v", got, err)
	}
}
