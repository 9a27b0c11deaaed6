package console

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

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
	if w := b.get("/console/events/connectors"); w.Code != http.StatusNoContent {
		t.Errorf("the next stream: %d %s", w.Code, w.Body)
	}
}

// Pages show no link or form to operations that the role does not allow.
func TestPagesShowWhatOneMayDo(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ada := h.user(store0, "ada")
	con, _, err := h.store.CreateConnector(t.Context(), store0, "box")
	must(t, err)
	must(t, errOf(h.store.SetDeployment(t.Context(),
		store.Deployment{Account: store0, Name: "m", Connectors: []string{con.ID}})))
	mux := h.console.mux
	for _, role := range store.Roles() {
		u, b := h.ofRole(role)
		own, _, err := h.store.CreateKey(t.Context(),
			store0, store.KeyFields{Name: "own of " + u.Name, Scope: "*", Owner: u.ID})
		must(t, err)
		must(t, errOf(h.store.CreateToken(t.Context(),
			store.Token{Account: store0, User: u.ID, Name: "ci", Rights: store.RightRead})))
		for _, path := range []string{
			"models", "models/show?name=m", "keys", "keys/" + own.ID, "connectors",
			"connectors/show?id=" + con.ID, "home", "usage", "activity", "audit", "settings", "start",
		} {
			w := b.get("/console/" + path)
			if w.Code == http.StatusForbidden {
				continue
			}
			links := regexp.MustCompile(`(href|action|formaction|hx-get|hx-post)="(/console/[^"#]*)`)
			for _, m := range links.FindAllStringSubmatch(w.Body.String(), -1) {
				method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[m[1] == "action" || m[1] == "hx-post"]
				if strings.Contains(w.Body.String(), `method="get" action="`+m[2]) {
					method = http.MethodGet
				}
				r, _ := http.NewRequest(method, m[2], nil) // of our own pages
				_, pattern := mux.Handler(r)
				operation, known := h.console.operations[pattern]
				if known && operation != ownThings && !manage.RoleMay(role, operation) {
					t.Errorf("%s sees %s %s on %s", role, method, m[2], path)
				}
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
	if w.Code != http.StatusSeeOther {
		t.Errorf("a key of a member: %d %s", w.Code, w.Body)
	}
	has(t, member.page("/console/keys"), "mias")
	for _, path := range []string{"models", "models/show?name=m", "activity"} {
		page := mainOf(member.page("/console/" + path))
		lacks(t, page, con.ID, con.Name, "Connector<", "by ada")
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
