package manage_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// needs has the rights that allow a route to a management token, any of them. Other
// routes are not for tokens.
var needs = map[string]string{
	"GET /status": "read", "GET /checklist": "read", "GET /activity": "read", "GET /usage": "read", "GET /audit": "read",
	"GET /activity/{id}": "read", "GET /accounts": "read",
	"GET /users": "read", "GET /invitations": "read",
	"GET /tokens": "read", "GET /sessions": "read", "GET /edges": "read",
	"GET /keys": "read keys", "POST /keys": "keys", "POST /setups": "keys", "DELETE /keys/{id}": "keys",
	"GET /keys/{id}": "read keys", "GET /keys/{id}/limits": "read keys", "GET /keys/{id}/people": "read keys",
	"POST /keys/{id}/forget": "keys", "PATCH /keys/{id}": "keys",
	"POST /keys/{id}/rotate": "keys", "POST /keys/{id}/disable": "keys", "POST /keys/{id}/enable": "keys",
	"GET /groups": "read keys", "GET /groups/{id}": "read keys", "POST /groups": "keys", "PATCH /groups/{id}": "keys",
	"DELETE /groups/{id}": "keys",
	"GET /connectors":     "read connectors", "POST /connectors": "connectors", "DELETE /connectors/{id}": "connectors",
	"GET /connectors/{id}": "read connectors", "PATCH /connectors/{id}": "connectors",
	"GET /connectors/{id}/models": "read connectors deployments", "POST /connectors/{id}/rotate": "connectors",
	"GET /pairings": "connectors", "POST /pairings": "connectors", "POST /pairings/approve": "connectors",
	"POST /pairings/deny": "connectors", "POST /webhooks/test": "connectors",
	"GET /offers": "read deployments", "GET /deployments": "read deployments",
	"PUT /deployments/{name}":    "deployments",
	"DELETE /deployments/{name}": "deployments", "POST /deployments/{name}/test": "deployments",
	"POST /deployments/{name}/measure": "deployments",
}

// A token can perform the operations of its rights, and no others.
func TestTokenRights(t *testing.T) {
	refused := newWorld(t)
	before := refused.records()
	for route := range accesses {
		for _, name := range store.RightNames() {
			right, err := store.ParseRights([]string{name})
			must(t, err)
			if strings.Contains(" "+needs[route]+" ", " "+name+" ") {
				w := refused
				if !strings.HasPrefix(route, "GET ") {
					w = newWorld(t)
				}
				if status, body := w.request(asToken(w.mine, right), route, ""); status >= 300 {
					t.Errorf("%s with the right %q: %d %s", route, name, status, body)
				}
				continue
			}
			status, body := refused.request(asToken(refused.mine, right), route, "")
			if status != http.StatusForbidden || !strings.Contains(body, "management token") {
				t.Errorf("%s with the right %q only: %d %s", route, name, status, body)
			}
			for need := range strings.FieldsSeq(needs[route]) {
				if !strings.Contains(body, need) {
					t.Errorf("%s: the error does not name the right %q: %s", route, need, body)
				}
			}
		}
	}
	if after := refused.records(); after != before {
		t.Errorf("the account's records have changed:\n%s\nwere\n%s", after, before)
	}
}

// Records that a token created or changed stay when it is revoked, and name it.
func TestRecordsOfToken(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	home := g.connector("default", "home", nil)
	g.deployment("llama3", home, "", "")
	token := wantAs[manage.CreatedToken](g, anna, 201, "POST", "/tokens",
		`{"name":"ci","rights":["keys","connectors","deployments"]}`)
	program := asToken(anna, token.Rights)
	program.Token = token.ID

	wantAs[manage.CreatedKey](g, program, 201, "POST", "/keys", `{"name":"stays"}`)
	other := wantAs[manage.CreatedKey](g, anna, 201, "POST", "/keys", `{"name":"annas"}`)
	rotated := wantAs[manage.CreatedKey](g, anna, 201, "POST", "/keys", `{"name":"rotated"}`)
	wantAs[manage.CreatedKey](g, program, 200, "POST", "/keys/"+rotated.ID+"/rotate", "{}")
	more := wantAs[manage.CreatedConnector](g, program, 201, "POST", "/connectors", `{"name":"more"}`)
	wantAs[manage.Deployment](g, program, 200, "PUT", "/deployments/llama3", `{"connector":"more"}`)
	if revoked := wantAs[manage.Token](g, anna, 200, "DELETE", "/tokens/"+token.ID, ""); revoked.ID != token.ID ||
		revoked.UserName != "anna" {
		t.Errorf("revoked %+v", revoked)
	}
	wantAs[map[string]any](g, anna, 404, "DELETE", "/tokens/"+token.ID, "")

	by := store.Actor{User: anna.User, Name: "anna", Token: token.ID, TokenName: "ci"}
	for _, k := range want[[]store.Key](g, 200, "GET", "/keys", "") {
		if (k.CreatedBy == by) != (k.Name == "stays") ||
			(k.RotatedBy != nil && *k.RotatedBy == by) != (k.ID == rotated.ID) || k.RevokedAt != nil {
			t.Errorf("the key %s is created by %+v and rotated by %+v; that of anna is %s", k.Name, k.CreatedBy,
				k.RotatedBy, other.ID)
		}
	}
	for _, c := range want[[]manage.Connector](g, 200, "GET", "/connectors", "") {
		if (c.CreatedBy == by) != (c.ID == more.ID) {
			t.Errorf("the connector %s is created by %+v", c.Name, c.CreatedBy)
		}
	}
	for _, d := range want[[]manage.Deployment](g, 200, "GET", "/deployments", "") {
		if d.ChangedBy != by || d.CreatedBy == by {
			t.Errorf("the deployment is created by %+v and changed by %+v", d.CreatedBy, d.ChangedBy)
		}
	}
}

// A pairing that a token approves creates a connector of the token.
func TestTokenPairs(t *testing.T) {
	w := newWorld(t)
	token := asToken(w.mine, store.RightConnectors)
	if status, body := w.request(token, "POST /pairings/approve", ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	connectors, err := w.service.Connectors(manage.WithCaller(t.Context(), w.mine))
	created := slices.ContainsFunc(connectors,
		func(c manage.Connector) bool { return c.Name == "mine-device" && c.CreatedBy.Token == token.Token })
	if err != nil || !created {
		t.Errorf("the connectors are %+v, %v", connectors, err)
	}
}

func TestTokenOptions(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	if plain := wantAs[manage.CreatedToken](g, anna, 201, "POST", "/tokens",
		`{"name":"ci"}`); plain.Rights != store.RightRead || plain.ExpiresAt != nil {
		t.Errorf("without options: %+v", plain)
	}
	end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	made := wantAs[manage.CreatedToken](g, anna, 201, "POST", "/tokens",
		`{"name":"ci","rights":["keys","read"],"expires_at":"`+end+`"}`)
	if made.Rights != store.RightRead|store.RightKeys || made.ExpiresAt.Format(time.RFC3339) != end {
		t.Errorf("made %+v", made)
	}
	for body, what := range map[string]string{
		`{"name":"ci","rights":[]}`:                         "at least one right",
		`{"name":"ci","rights":["all"]}`:                    `unknown right \"all\"`,
		`{"name":"ci","rights":"read"}`:                     "array of strings",
		`{"name":"ci","expires_at":"tomorrow"}`:             "expires_at",
		`{"name":"ci","expires_at":"2020-01-01T00:00:00Z"}`: "is in the past",
	} {
		if w := g.doAs(anna, "POST", "/tokens", body); w.Code != 400 || !strings.Contains(w.Body.String(), what) {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

// An operator sets the limits of an account, and admins of the default account those of that one. Users who reach a
// limit get an error.
func TestAccountLimits(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	added := want[store.Account](g, 201, "POST", "/accounts", `{"id":"lab","max_keys":7}`)
	if added.Limits != (store.Limits{MaxKeys: 7}).Effective() {
		t.Errorf("added %+v", added)
	}
	set := want[store.Account](g, 200, "PATCH", "/accounts/default", `{"max_keys":1,"max_users":5}`)
	if set.Limits != (store.Limits{MaxKeys: 1, MaxUsers: 5}).Effective() {
		t.Errorf("set %+v", set)
	}
	wantAs[manage.CreatedKey](g, anna, 201, "POST", "/keys", `{"name":"a"}`)
	w := g.doAs(anna, "POST", "/keys", `{"name":"b"}`)
	if w.Code != 409 || !strings.Contains(w.Body.String(), "account set default --max-keys N") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	lab := g.user("lab", "lena")
	for _, refused := range []struct {
		caller manage.Caller
		path   string
	}{{anna, "/accounts/lab"}, {anna, "/accounts/none"}, {lab, "/accounts/lab"}, {lab, "/accounts/default"}} {
		wantAs[map[string]any](g, refused.caller, 403, "PATCH", refused.path, `{"max_keys":9}`)
	}
	wantAs[map[string]any](g, asToken(anna, store.AllRights), 403, "PATCH", "/accounts/default", `{"max_keys":9}`)
	if a := wantAs[store.Account](g, anna, 200, "PATCH", "/accounts/default", `{"max_keys":9}`); a.Limits.MaxKeys != 9 {
		t.Errorf("an admin has set %+v", a)
	}
	if list := wantAs[[]store.Account](g, lab, 200, "GET", "/accounts", ""); len(list) != 1 || list[0].ID != "lab" {
		t.Errorf("a user sees %+v", list)
	}
	want[map[string]any](g, 400, "PATCH", "/accounts/default", `{"max_keys":-1}`)
	want[map[string]any](g, 400, "PATCH", "/accounts/default", `{"max_keys":"9"}`)
	want[map[string]any](g, 404, "PATCH", "/accounts/none", `{"max_keys":9}`)
	set = want[store.Account](g, 200, "PATCH", "/accounts/default", `{"max_keys":0}`)
	if set.Limits.MaxKeys != 1000 || set.Limits.MaxUsers != 5 {
		t.Errorf("set again %+v", set)
	}
	for _, a := range want[[]store.Account](g, 200, "GET", "/accounts", "") {
		if a.Limits != a.Limits.Effective() {
			t.Errorf("listed %+v", a)
		}
	}
}

// DELETE revokes a key, and may be repeated. It removes the record only with record=remove.
func TestDeleteKey(t *testing.T) {
	g := newGateway(t)
	key := want[manage.CreatedKey](g, 201, "POST", "/keys", `{"name":"a"}`)
	var revoked time.Time
	for i := range 3 {
		d := want[manage.DeletedKey](g, 200, "DELETE", "/keys/"+key.ID, "")
		if d.Removed || d.Already != (i > 0) || d.RevokedAt == nil || i > 0 && !d.RevokedAt.Equal(revoked) ||
			len(g.store.Keys("default")) != 1 {
			t.Fatalf("time %d: %+v, revoked %v", i, d, d.RevokedAt)
		}
		revoked = *d.RevokedAt
	}
	want[map[string]any](g, 400, "DELETE", "/keys/"+key.ID+"?record=keep", "")
	other := want[manage.CreatedKey](g, 201, "POST", "/keys", `{"name":"b"}`)
	for i, id := range []string{other.ID, key.ID} {
		d := want[manage.DeletedKey](g, 200, "DELETE", "/keys/"+id+"?record=remove", "")
		if !d.Removed || d.Already != (id == key.ID) || d.ID != id || d.RevokedAt == nil ||
			len(g.store.Keys("default")) != 1-i {
			t.Errorf("removing: %+v", d)
		}
		want[map[string]any](g, 404, "DELETE", "/keys/"+id, "")
		want[map[string]any](g, 404, "DELETE", "/keys/"+id+"?record=remove", "")
	}
}

// The help of the limits for records names their defaults.
func TestHelpNamesDefaults(t *testing.T) {
	defaults := store.Limits{}.Effective()
	for f := range reflect.TypeFor[store.Limits]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous { // limits of use have no defaults
			continue
		}
		want := fmt.Sprintf("(default %d)", *defaults.Field(name))
		if help := f.Tag.Get("help"); !strings.HasSuffix(help, want) {
			t.Errorf("%s: %q does not end with %q", name, help, want)
		}
	}
}
