package console

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// ofRole returns a user of a role, and the browser.
func (h *house) ofRole(role store.Role) (store.User, *browser) {
	h.Helper()
	return h.ofRoleNamed("the-"+string(role), role)
}

func (h *house) ofRoleNamed(name string, role store.Role) (store.User, *browser) {
	h.Helper()
	u := h.user(store0, name)
	u, err := h.store.SetUserRole(h.Context(), store0, u.ID, role)
	must(h, err)
	return u, h.in(u)
}

// Each page and action names the operation of the management API that it performs, which exists.
func TestOperationsOfRoutes(t *testing.T) {
	t.Parallel()
	for _, r := range routes {
		if r.operation != ownThings && !manage.RoleMay(store.RoleAdmin, r.operation) {
			t.Errorf("%s performs %q, which is not an operation for admins", r.pattern, r.operation)
		}
	}
}

// Users are refused what their role does not allow, with a page that says why, and in parts of
// pages and streams.
func TestRolesAreRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.user(store0, "ada")
	for _, role := range store.Roles() {
		_, b := h.ofRole(role)
		for _, route := range routes {
			method, path, _ := strings.Cut(route.pattern, " ")
			path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "x")
			allowed := route.operation == ownThings || manage.RoleMay(role, route.operation)
			if allowed && (method == http.MethodPost || route.operation == ownThings) {
				continue // it would change something
			}
			w := b.request(method, path, "", func(r *http.Request) {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			})
			if refused := w.Code == http.StatusForbidden &&
				strings.Contains(w.Body.String(), string(role)[1:]+"s cannot do this. Ask an admin"); refused == allowed {
				t.Errorf("%s as %s: %d", route.pattern, role, w.Code)
			}
		}
	}
}

// The stream of an open page ends when the user's role no longer allows the page.
func TestStreamEndsWithTheRole(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.user(store0, "ada")
	u, b := h.ofRole(store.RoleViewer)
	open := b.stream("/console/events/connectors")
	has(t, open.next(), "connectors-list")
	must(t, errOf(h.store.SetUserRole(t.Context(), store0, u.ID, store.RoleMember)))
	if text, ok := open.message(); ok {
		t.Errorf("the stream continues: %s", text)
	}
	b.refused(b.get("/console/events/connectors"), http.StatusNoContent, "")
}

// Pages show no link or form to operations that the role does not allow.
func TestPagesShowWhatOneMayDo(t *testing.T) {
	t.Parallel()
	cluster := &edges{contacts: map[string]store.Contact{"edge-b": {Last: time.Now(), Until: time.Now()}}}
	h := newHouseIn(t, cluster)
	cluster.store = h.store
	must(t, h.store.AddEdge(t.Context(), store.Edge{Name: "edge-b", Instance: "b"}))
	ada := h.user(store0, "ada")
	con, _, err := h.store.CreateConnector(t.Context(), store0, "box")
	must(t, err)
	must(t, errOf(h.store.SetDeployment(t.Context(),
		store.Deployment{Account: store0, Name: "m", Connectors: []string{con.ID}})))
	admin := h.in(ada)
	waiting := admin.claim(admin.code(), "spare-box").ID
	for _, role := range store.Roles() {
		u, b := h.ofRole(role)
		own, _, err := h.store.CreateKey(t.Context(),
			store0, store.KeyFields{Name: "own of " + u.Name, Scope: "*", Owner: u.ID})
		must(t, err)
		query := "?" + encode("name", "m", "id", con.ID, "connector", con.ID, "key", own.ID)
		token, _, err := h.store.CreateToken(t.Context(),
			store.Token{Account: store0, User: u.ID, Name: "ci", Rights: store.RightRead})
		must(t, err)
		passkey := store.Passkey{ID: []byte(u.ID), Name: "phone", Credential: []byte(`{}`), CreatedAt: h.now()}
		must(t, h.store.AddPasskey(t.Context(), u.ID, "c", passkey))
		h.log.Record(store0, activity.Request{ID: "req_" + u.Name, Time: h.now(), KeyID: own.ID, Deployment: "m"})
		ids := map[string]string{
			"activity": "req_" + u.Name, "connectors": con.ID, "edges": "edge-b", "groups": h.group(u), "keys": own.ID,
			"pairings":          waiting,
			"settings/passkeys": passkeyID(passkey), "settings/tokens": token.ID, "settings/users": ada.ID,
		}
		for _, r := range routes {
			if r.opens != nil {
				folder, _, _ := strings.Cut(r.opens.path, "/{id}")
				b.showsNoMore(role, strings.Replace(r.opens.url(), "{id}", ids[folder], 1)+query)
			}
		}
	}
	_, viewer := h.ofRoleNamed("vera", store.RoleViewer)
	has(t, viewer.page("/console/settings"), "ada", "Viewer: sees everything")
	lacks(t, viewer.page("/console/settings"), "Invite someone", "New token")
	_, member := h.ofRoleNamed("mia", store.RoleMember)
	lacks(t, member.page("/console/settings"), ">ada<", "Invite someone")
	lacks(t, member.page("/console/keys"), "own of")
	lacks(t, member.page("/console/keys/new"), "Owner", ada.ID, "Tokens per day", "Priority")
	member.goes(member.get("/console/"), "/console/models")
	w := member.post("/console/keys", "name", "mias", "scope", "m")
	member.refused(w, http.StatusSeeOther, "")
	has(t, member.page("/console/keys"), "mias")
	for _, path := range []string{"models", "models/show?name=m", "activity"} {
		page := mainOf(member.page("/console/" + path))
		lacks(t, page, con.ID, con.Name, "Connector<", "by ada")
	}
}

// showsNoMore checks that a page exists, and has no link or form to an operation that the role does not allow.
func (b *browser) showsNoMore(role store.Role, path string) {
	b.Helper()
	w := b.get(path)
	if w.Code != http.StatusOK && w.Code != http.StatusForbidden {
		b.Errorf("%s gets %d on %s; is a record of this kind missing in the test?", role, w.Code, path)
	}
	page := w.Body.String()
	links := regexp.MustCompile(`(href|action|formaction|hx-get|hx-post)="(/console/[^"#]*)`)
	for _, m := range links.FindAllStringSubmatch(page, -1) {
		method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[m[1] == "action" || m[1] == "hx-post"]
		if strings.Contains(page, `method="get" action="`+m[2]) {
			method = http.MethodGet
		}
		r, _ := http.NewRequest(method, m[2], nil) // of our own pages
		_, pattern := b.console.mux.Handler(r)
		operation, known := b.console.operations[pattern]
		if known && operation != ownThings && !manage.RoleMay(role, operation) {
			b.Errorf("%s sees %s %s on %s", role, method, m[2], path)
		}
	}
}

// An admin changes a role, and invites with one.
func TestRolesInSettings(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ada, bert := h.user(store0, "ada"), h.user(store0, "bert")
	b := h.in(ada)
	b.goes(b.post("/console/settings/users/"+bert.ID+"/role", "role", "viewer"), "/console/settings")
	has(t, b.page("/console/settings"), "bert is a viewer now.")
	if u, _ := h.store.User(bert.ID); u.Role != store.RoleViewer {
		t.Errorf("bert is %q", u.Role)
	}
	b.refused(b.post("/console/settings/users/"+ada.ID+"/role", "role", "member"), http.StatusConflict, "last admin")
	w := b.post("/console/settings/invitations", "role", "member")
	has(t, w.Body.String(), "with the role member")
	has(t, b.page("/console/settings"), "member. By ada")
}

// Users see and change no records of other accounts.
func TestOtherAccounts(t *testing.T) {
	g := newGateway(t)
	con := g.connector("gpu-box")
	g.deployment("qwen3", con)
	k, _, err := g.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "laptop", Scope: "*"})
	must(t, err)
	group, err := g.store.CreateGroup(t.Context(), store0, store.GroupFields{Name: "laptops", Scope: "qwen3"})
	must(t, err)
	code := g.code()
	g.claim(code, "spare-box")
	pairing := g.pairing(store.PairingPending).ID
	g.post("/console/settings/invitations")
	g.post("/console/settings/tokens", "name", "adas-token", "right", "read", "days", "0")
	link, token := g.store.Links(store0)[0], g.store.Tokens(store0)[0]
	g.record(0, activity.Request{KeyID: k.ID, Deployment: "qwen3"})
	must(t, errOf(g.store.CreateAccount(t.Context(), "other")))
	eve := g.browser()
	eve.signInAs("other", "eve")
	for _, page := range []string{
		"start", "home", "connectors", "models", "models/choices?connector=" + con.ID, "keys", "keys/preview?scope=*",
		"groups", "groups/new", "activity", "usage", "settings",
	} {
		lacks(t, mainOf(eve.get("/console/"+page).Body.String()), "gpu-box", "qwen3", "laptop", code, "spare-box", link.ID,
			token.ID, "adas-token", g.userID())
	}
	keys, connector := "/console/keys/"+k.ID, "/console/connectors/"+con.ID
	for _, path := range []string{
		keys, keys + "/revoke", keys + "/created", connector + "/remove", connector + "/rotate",
		"/console/groups/" + group.ID, "/console/groups/" + group.ID + "/remove",
		"/console/models/show?name=qwen3", "/console/models/remove?name=qwen3", "/console/pairings/" + pairing,
		"/console/pairings/" + code,
	} {
		eve.refused(eve.get(path), http.StatusNotFound, "")
	}
	for _, path := range []string{
		keys, keys + "/revoke", keys + "/disable", keys + "/enable", keys + "/rotate", keys + "/remove",
		"/console/groups/" + group.ID, "/console/groups/" + group.ID + "/remove",
		connector + "/remove", connector + "/rotate", "/console/models", "/console/models/test", "/console/models/remove",
		"/console/pairings/" + pairing + "/approve", "/console/pairings/" + pairing + "/deny",
		"/console/pairings/" + code + "/approve", "/console/pairings/" + code + "/deny",
		"/console/settings/users/" + g.userID() + "/remove", "/console/settings/users/" + g.userID() + "/recovery-link",
		"/console/settings/invitations/" + link.ID + "/revoke", "/console/settings/tokens/" + token.ID + "/revoke",
	} {
		w := eve.post(path, "name", "qwen3", "connector", con.ID, "scope", "*", "grace", "0s")
		eve.refused(w, http.StatusNotFound, "")
		lacks(t, w.Body.String(), "ptt_")
	}
	if now, ok := g.store.Key(store0, k.ID); !ok || now.RevokedAt != nil ||
		g.pairing(store.PairingPending).ID != pairing || len(g.store.Users(store0)) != 1 ||
		len(g.store.Links(store0)) != 1 || len(g.store.Tokens(store0)) != 1 ||
		len(g.store.Groups(store0)) != 1 || len(g.store.Connectors(store0)) != 1 || len(g.store.Deployments(store0)) != 1 {
		t.Error("something of the other account has changed")
	}
}
