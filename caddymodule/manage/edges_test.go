package manage_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// newEdge returns the gateway of an edge, and the store of another one.
func newEdge(t *testing.T) (g *gateway, edge *storetest.Edge, other *store.Store) {
	t.Helper()
	kv := storetest.OpenBolt(t, t.TempDir()+"/gateway.db")
	other, _ = storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
	st, edge := storetest.OpenEdge(t, kv, store.Options{Edge: "b"})
	return newGatewayOn(t, st, nil), edge, other
}

// A gateway that has lost its store refuses requests for records. If only writes fail, it answers reads, and reports
// that the write may have been made. Only operators get the addresses of the store.
func TestStoreLost(t *testing.T) {
	t.Parallel()
	g, edge, _ := newEdge(t)
	ann := g.user(store.DefaultAccount, "ann")
	edge.Lose(true)
	for _, path := range []string{"/checklist", "/keys"} {
		w := g.do("GET", path, "")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
			!strings.Contains(w.Body.String(), "has lost its store") {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	edge.Lose(false)
	edge.Cut(true)
	want[[]any](g, 200, "GET", "/keys", "")
	const address = "10.9.8.7"
	for _, tt := range []struct {
		caller manage.Caller
		shown  bool
	}{{manage.Caller{Operator: true}, true}, {ann, false}} {
		w := g.doAs(tt.caller, "POST", "/keys", `{"name":"x"}`)
		text := w.Body.String()
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
			strings.Contains(text, address) != tt.shown ||
			strings.Contains(text, "may or may not have been made") == tt.shown {
			t.Errorf("%+v: %d %v %s", tt.caller, w.Code, w.Header(), text)
		}
		checkBody(t, "POST /keys", "responses/default", w.Body.Bytes())
	}
	if !strings.Contains(g.log.String(), address) {
		t.Error("the log lacks the reason")
	}
}

// An edge that has lost its store answers its operators about itself. Only they get the reason, with addresses.
func TestProblemOfEdge(t *testing.T) {
	t.Parallel()
	st, edge := storetest.OpenEdge(t, storetest.OpenBolt(t, t.TempDir()+"/gateway.db"), store.Options{Edge: "edge-a"})
	const why = "etcd at 10.9.8.7:2379 did not answer"
	at := time.Now().Add(-time.Minute)
	c := &fakeCluster{contacts: map[string]store.Contact{"edge-a": {Last: at, Until: at, Problem: why}}}
	g := newGatewayOn(t, st, c)
	c.start(g)
	ann := g.user(store.DefaultAccount, "ann")
	for _, lost := range []bool{false, true} {
		edge.Lose(lost)
		edges := want[[]manage.Edge](g, 200, "GET", "/edges", "")
		edges = append(edges, want[manage.Status](g, 200, "GET", "/status", "").Edges...)
		for i, e := range edges {
			if self := i%2 == 0; e.Self != self || (e.Problem == why) != self {
				t.Errorf("lost: %v, edge %d: %+v", lost, i, e)
			}
		}
		for _, path := range []string{"/edges", "/status"} {
			w := g.doAs(ann, "GET", path, "")
			if refused := w.Code == http.StatusServiceUnavailable; refused != lost || strings.Contains(w.Body.String(), why) {
				t.Errorf("lost: %v, %s for a user: %d %s", lost, path, w.Code, w.Body)
			}
		}
	}
	if w := g.do("GET", "/keys", ""); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "has lost its store: "+why) {
		t.Errorf("another operation: %d %s", w.Code, w.Body)
	}
}

// An account that another edge created is found.
func TestAccountOfAnotherEdge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, edge, other := newEdge(t)
		must(t, errOf(other.CreateAccount(t.Context(), "team")))
		edge.Cut(true)
		if w := g.do("GET", "/keys?account=team", ""); w.Code != http.StatusServiceUnavailable {
			t.Errorf("without the store: %d %s", w.Code, w.Body)
		}
		edge.Cut(false)
		want[[]any](g, 200, "GET", "/keys?account=team", "")
		want[map[string]any](g, 404, "GET", "/keys?account=none", "")
	})
}

// A change that edges have not confirmed is answered with 202 and these edges, and logged.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	g, edge, _ := newEdge(t)
	ann := g.user(store.DefaultAccount, "ann")
	bob := g.user(store.DefaultAccount, "bob")
	_, _, err := g.store.CreateSession(t.Context(), bob.User, "password", "", "")
	must(t, err)
	key, secret, err := g.store.CreateKey(store.WithActor(t.Context(), store.Actor{Token: "mgt_1"}),
		store.DefaultAccount, store.KeyFields{Name: "laptop", Scope: "*"})
	must(t, err)
	con := g.connector(store.DefaultAccount, "box", nil)
	token, _, err := g.store.CreateToken(t.Context(),
		store.Token{Account: store.DefaultAccount, User: ann.User, Name: "ci", Rights: store.AllRights})
	must(t, err)
	want[any](g, 201, "POST", "/accounts", `{"id":"team"}`)
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	edge.Leave(store.PendingEdge{Edge: "c", Until: until})
	for _, tt := range []struct {
		caller        manage.Caller
		route, body   string
		id, operation string
	}{
		{ann, "PUT /deployments/{name}", `{"connector":"box"}`, "m", "deployment.set"},
		{ann, "DELETE /deployments/{name}", "", "m", "deployment.remove"},
		{ann, "PATCH /keys/{id}", `{"scope":"qwen*"}`, key.ID, "key.edit"},
		{ann, "POST /keys/{id}/disable", `{}`, key.ID, "key.disable"},
		{ann, "DELETE /keys/{id}", "", key.ID, "key.revoke"},
		{ann, "DELETE /keys/{id}", "", key.ID, "key.revoke"},
		{ann, "DELETE /keys/{id}?record=remove", "", key.ID, "key.remove"},
		{ann, "DELETE /connectors/{id}", "", con.info.Connector, "connector.remove"},
		{ann, "DELETE /tokens/{id}", "", token.ID, "token.revoke"},
		{bob, "DELETE /sessions", "", "", "session.revoke_others"},
		{bob, "DELETE /sessions/{id}", "", bob.Session, "session.revoke"},
		{ann, "DELETE /users/{id}", "", bob.User, "user.remove"},
		{manage.Caller{Operator: true}, "DELETE /accounts/{id}", "", "team", "account.remove"},
	} {
		method, path, _ := strings.Cut(tt.route, " ")
		tt.route, _, _ = strings.Cut(tt.route, "?")
		w := g.doAs(tt.caller, method, strings.NewReplacer("{id}", tt.id, "{name}", tt.id).Replace(path), tt.body)
		var answer struct {
			Confirmed *bool
			Pending   []struct {
				Edge  string
				After time.Time `json:"accepts_nothing_after"`
			}
			Message string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusAccepted {
			t.Errorf("%s: %d %s", tt.route, w.Code, w.Body)
			continue
		}
		if answer.Confirmed == nil || *answer.Confirmed || len(answer.Pending) != 1 || answer.Pending[0].Edge != "c" ||
			!answer.Pending[0].After.Equal(until) ||
			!strings.Contains(answer.Message, "the change is made, but not confirmed") {
			t.Errorf("%s: %s", tt.route, w.Body)
		}
		checkBody(t, tt.route, "responses/202", w.Body.Bytes())
		if !strings.Contains(g.log.String(), tt.operation) {
			t.Errorf("%s is not logged", tt.operation)
		}
	}
	if _, ok := g.store.FindKey(secret); ok {
		t.Error("the key still exists")
	}
}
