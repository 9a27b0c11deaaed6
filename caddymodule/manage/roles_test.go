package manage_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// as returns a caller with a user of this role.
func (w *world) as(role store.Role) manage.Caller {
	w.t.Helper()
	c := w.user("default", "mine-"+string(role))
	must(w.t, errOf(w.store.SetUserRole(w.t.Context(), "default", c.User, role)))
	return c
}

// memberRoutes are the routes that members may use, besides those for their own sessions.
var memberRoutes = []string{
	"GET /keys", "POST /keys", "GET /keys/{id}", "PATCH /keys/{id}", "DELETE /keys/{id}", "POST /keys/{id}/rotate",
	"POST /keys/{id}/disable", "POST /keys/{id}/enable", "POST /setups",
	"GET /keys/{id}/limits", "GET /keys/{id}/people", "POST /keys/{id}/forget", "GET /groups", "GET /groups/{id}",
	"GET /deployments", "GET /activity", "GET /activity/{id}", "GET /usage",
	"GET /tokens", "POST /tokens", "DELETE /tokens/{id}",
}

// hiddenFromViewers are the routes that only read, and that viewers may not use.
var hiddenFromViewers = []string{"GET /pairings", "GET /backup", "GET /identity"}

func mayUse(role store.Role, route string) bool {
	switch {
	case role == store.RoleAdmin || strings.Contains(route, " /sessions"):
		return true
	case role == store.RoleMember:
		return slices.Contains(memberRoutes, route)
	}
	return strings.HasPrefix(route, "GET ") && !slices.Contains(hiddenFromViewers, route)
}

// Each role may use its routes, and no others, with a session and with a token. A token is
// restricted by its own role, too.
func TestRoles(t *testing.T) {
	refused := newWorld(t)
	callers := map[store.Role][]manage.Caller{}
	for _, role := range store.Roles() {
		c := refused.as(role)
		byToken := asToken(refused.mine, store.AllRights) // of an admin
		byToken.Role = role
		callers[role] = []manage.Caller{c, asToken(c, store.AllRights), byToken}
	}
	before := refused.records()
	for route := range accesses {
		for role, all := range callers {
			for i, c := range all {
				if i > 0 && needs[route] == "" {
					continue // not for tokens
				}
				if mayUse(role, route) {
					w := refused
					if !strings.HasPrefix(route, "GET ") {
						continue // see TestAccessAllowed and TestMember
					}
					if status, body := w.request(c, route, ""); strings.Contains(body, "s cannot do this") || status >= 500 {
						t.Errorf("%s as %s (%d): %d %s", route, role, i, status, body)
					}
					continue
				}
				reason := string(role) + "s cannot do this"
				if manage.FindOperation(route).Roles == 0 {
					reason = "only the operator of the gateway"
				}
				if status, body := refused.request(c, route, ""); status != http.StatusForbidden ||
					!strings.Contains(body, reason) {
					t.Errorf("%s as %s (%d): %d %s", route, role, i, status, body)
				}
			}
		}
	}
	if after := refused.records(); after != before {
		t.Errorf("the account's records have changed:\n%s\nwere\n%s", after, before)
	}
}

// A member has keys of its own. Those of others do not exist for it, and neither does their use.
func TestMember(t *testing.T) {
	w := newWorld(t)
	mia := w.as(store.RoleMember)
	other := w.ids["{key}"]
	own := wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"mias"}`)
	before := w.doAs(w.mine, "GET", "/keys/"+other, "").Body.String()
	for _, c := range []manage.Caller{mia, asToken(mia, store.AllRights)} {
		var keys []manage.Key
		if err := json.Unmarshal(w.doAs(c, "GET", "/keys", "").Body.Bytes(), &keys); err != nil || len(keys) != 1 ||
			keys[0].ID != own.ID || keys[0].Owner != mia.User {
			t.Errorf("its keys: %+v, %v", keys, err)
		}
		for _, key := range []string{other, "mine-key"} {
			for request, body := range map[string]string{
				"GET /": "", "PATCH /": `{"note":"taken"}`, "DELETE /": "", "POST /rotate": "{}", "POST /disable": "{}",
				"POST /enable": "{}",
			} {
				method, action, _ := strings.Cut(request, " ")
				w.refused(c, http.StatusNotFound, method, "/keys/"+key+strings.TrimSuffix(action, "/"), body, "")
			}
			w.refused(c, http.StatusNotFound, "DELETE", "/keys/"+key+"?record=remove", "", "")
		}
		for _, owner := range []string{"mine-user", ""} {
			w.refused(c, http.StatusForbidden, "PATCH", "/keys/mias", `{"owner":"`+owner+`"}`, "")
			w.refused(c, http.StatusForbidden, "POST", "/keys", `{"name":"x","owner":"`+owner+`"}`, "")
		}
	}
	if after := w.doAs(w.mine, "GET", "/keys/"+other, "").Body.String(); after != before {
		t.Errorf("another's key was changed: %s, was %s", after, before)
	}
	wantAs[manage.Key](w.gateway, mia, 200, "PATCH", "/keys/mias", `{"note":"mine","owner":"mine-member"}`)
	wantAs[manage.Key](w.gateway, w.mine, 200, "PATCH", "/keys/mias",
		`{"limits":{"tokens_per_day":9},"priority":"low"}`)
	for _, tt := range []struct{ method, path, body string }{
		{"PATCH", "/keys/mias", `{"limits":{"tokens_per_day":0}}`},
		{"PATCH", "/keys/mias", `{"priority":"normal"}`},
		{"PATCH", "/keys/mias", `{"priority":"high"}`},
		{"POST", "/keys", `{"name":"y","limits":{"concurrency":9}}`},
		{"POST", "/keys", `{"name":"y","priority":"low"}`},
		{"POST", "/keys", `{"name":"y","user_field":true,"person_limits":{"requests_per_day":9}}`},
		{"POST", "/setups", `{"client":"claude","priority":"high"}`},
	} {
		wantAs[map[string]any](w.gateway, mia, 403, tt.method, tt.path, tt.body)
	}
	wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"plain","priority":"normal"}`)
	wantAs[manage.Key](w.gateway, mia, 200, "PATCH", "/keys/plain", `{"user_header":"X-Person"}`)
	if k := wantAs[manage.Key](w.gateway, mia, 200, "PATCH", "/keys/mias", `{"note":"low"}`); k.Priority != "low" {
		t.Errorf("changed by its owner: %+v", k)
	}
	wantAs[manage.DeletedKey](w.gateway, mia, 200, "DELETE", "/keys/plain?record=remove", "")
	wantAs[manage.Key](w.gateway, w.mine, 200, "POST", "/keys/mias/disable", "{}")
	for _, request := range []string{"POST /keys/mias/enable", "PATCH /keys/mias", "POST /keys/mias/rotate"} {
		method, path, _ := strings.Cut(request, " ")
		wantAs[map[string]any](w.gateway, mia, 403, method, path, "{}")
	}
	wantAs[manage.Key](w.gateway, w.mine, 200, "POST", "/keys/mias/enable", "{}")
	wantAs[manage.Key](w.gateway, mia, 200, "POST", "/keys/mias/disable", "{}")
	wantAs[manage.DeletedKey](w.gateway, mia, 200, "DELETE", "/keys/mias?record=remove", "")
}

// Members see models without their connectors, and not who has published them.
func TestModelsOfMembers(t *testing.T) {
	w := newWorld(t)
	mia := w.as(store.RoleMember)
	own := wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"mias"}`)
	home, _ := w.store.FindConnector("default", "mine-connector")
	w.activity.Record("default",
		activity.Request{ID: "req_mia", KeyID: own.ID, Time: time.Now(), Deployment: "m", Connector: home.ID, Status: 200})
	hidden := []string{home.ID, home.Name, w.mine.User, `"by"`}
	for _, path := range []string{"/deployments", "/scope", "/activity", "/activity/req_mia"} {
		admin, member := w.doAs(w.mine, "GET", path, ""), w.doAs(mia, "GET", path, "")
		if admin.Code != member.Code || admin.Code == 200 && !strings.Contains(admin.Body.String(), home.ID) {
			t.Errorf("%s: %d, an admin gets %d %s", path, member.Code, admin.Code, admin.Body)
		}
		for _, part := range hidden {
			if strings.Contains(member.Body.String(), part) {
				t.Errorf("%s: a member gets %q: %s", path, part, member.Body)
			}
		}
	}
	if all := wantAs[[]manage.Deployment](w.gateway, mia, 200, "GET", "/deployments", ""); len(all) == 0 {
		t.Error("a member sees no models")
	}
	connectors, err := w.service.Connectors(manage.WithCaller(t.Context(), mia))
	if len(connectors) != 0 || err != nil {
		t.Errorf("its pages show %+v, %v", connectors, err)
	}
}

// A member sees the use of its keys, and its own tokens.
func TestUseOfMembers(t *testing.T) {
	w := newWorld(t)
	mia := w.as(store.RoleMember)
	own := wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"mias"}`)
	for i, key := range []string{own.ID, w.ids["{key}"], "key_removed", ""} {
		w.activity.Record("default",
			activity.Request{ID: "req_" + key, KeyID: key, Time: time.Now(), Deployment: "m", Status: 200, InputTokens: 10 << i})
	}
	found := wantAs[manage.Requests](w.gateway, mia, 200, "GET", "/activity", "")
	if requests := found.Requests; len(requests) != 1 || requests[0].KeyID != own.ID {
		t.Errorf("requests: %+v", requests)
	}
	for _, query := range []string{"", "?by=key", "?by=model", "?by=key,model,day"} {
		sums := wantAs[[]manage.UsageSum](w.gateway, mia, 200, "GET", "/usage"+query, "")
		if sum := sumOf(sums); sum.Requests != 1 || sum.InputTokens != 10 {
			t.Errorf("usage%s: %+v", query, sums)
		}
	}
	if a := w.doAs(mia, "GET", "/usage?format=csv", ""); strings.Count(a.Body.String(), "\n") != 2 ||
		!strings.Contains(a.Body.String(), ",1,") {
		t.Errorf("usage as CSV: %s", a.Body)
	}
	created := wantAs[manage.CreatedToken](w.gateway, mia, 201, "POST", "/tokens", `{"name":"mias","rights":["keys"]}`)
	if tokens := wantAs[[]manage.Token](w.gateway, mia, 200, "GET", "/tokens", ""); len(tokens) != 1 ||
		tokens[0].ID != created.ID || created.Role != store.RoleMember {
		t.Errorf("tokens: %+v", tokens)
	}
	for path, want := range map[string]int{
		"/tokens/" + w.ids["{token}"]: 404, "/tokens/" + created.ID: 200,
	} {
		if a := w.doAs(mia, "DELETE", path, ""); a.Code != want {
			t.Errorf("DELETE %s: %d %s", path, a.Code, a.Body)
		}
	}
}

// A role is in force at once. The last admin of an account stays one, and invitations end with the
// role of their creator.
func TestRoleChanges(t *testing.T) {
	g := newGateway(t)
	anna, bert := g.user("default", "anna"), g.user("default", "bert")
	link := wantAs[manage.Link](g, bert, 201, "POST", "/invitations", `{"role":"viewer"}`)
	if link.Role != store.RoleViewer {
		t.Errorf("the invitation has the role %q", link.Role)
	}
	secret := link.URL[strings.IndexByte(link.URL, '#')+1:]
	if _, err := g.store.FindLink(secret); err != nil {
		t.Errorf("the invitation: %v", err)
	}
	if u := wantAs[manage.User](g, anna, 200, "PATCH", "/users/bert", `{"role":"member"}`); u.Role != store.RoleMember {
		t.Errorf("%+v", u)
	}
	if _, err := g.store.FindLink(secret); err == nil {
		t.Error("an invitation of a member works")
	}
	g.refused(bert, http.StatusForbidden, "PATCH", "/users/bert", `{"role":"admin"}`, "")
	for _, c := range []manage.Caller{anna, {Name: "root", Operator: true}} {
		g.refused(c, http.StatusConflict, "PATCH", "/users/anna", `{"role":"viewer"}`, "last admin")
	}
	g.refused(operator, http.StatusConflict, "DELETE", "/users/anna", "", "")
	g.refused(anna, http.StatusBadRequest, "PATCH", "/users/bert", `{"role":"boss"}`, "admin, member and viewer")
	if u := wantAs[manage.User](g, anna, 201, "POST", "/users",
		`{"name":"vera","password":"long enough for this","role":"viewer"}`); u.Role != store.RoleViewer {
		t.Errorf("%+v", u)
	}
	wantAs[manage.User](g, anna, 200, "DELETE", "/users/vera", "")
	wantAs[manage.User](g, anna, 200, "DELETE", "/users/bert", "")
	// so that the account can be removed
	wantAs[manage.User](g, operator, 200, "DELETE", "/users/anna", "")
}
