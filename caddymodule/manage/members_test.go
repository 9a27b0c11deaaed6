package manage_test

import (
	"context"
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

// fakeCluster is the cluster of edge-a, which leads, and edge-b.
type fakeCluster struct {
	store    *store.Store
	contacts map[string]store.Contact
}

// start adds the edges to the store of the gateway.
func (c *fakeCluster) start(g *gateway) {
	g.t.Helper()
	c.store = g.store
	for _, name := range []string{"edge-a", "edge-b"} {
		err := g.store.AddEdge(g.t.Context(), store.Edge{
			Name: name, Instance: name, Version: "v1.2.3", Advertise: "203.0.113.7:7443",
			StartedAt: time.Now().UTC(),
		})
		must(g.t, err)
	}
}

func (*fakeCluster) Name() string       { return "edge-a" }
func (*fakeCluster) LeaderName() string { return "edge-a" }

func (c *fakeCluster) Contact(name string) store.Contact { return c.contacts[name] }

func (c *fakeCluster) Remove(ctx context.Context, name string, stopped bool) error {
	if !stopped {
		return store.Errorf(store.ErrInUse, "the edge %s may accept requests", name)
	}
	lost, _ := c.store.FindEdge(name)
	return c.store.RemoveEdge(ctx, lost.Edge)
}

func TestEdges(t *testing.T) {
	c := &fakeCluster{}
	g := newGatewayIn(t, c)
	c.start(g)
	var edges []manage.Edge
	answer := g.do("GET", "/edges", "")
	if err := json.Unmarshal(answer.Body.Bytes(), &edges); err != nil || len(edges) != 2 {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	a, b := edges[0], edges[1]
	if a.Name != "edge-a" || a.State != manage.EdgeServing || !a.Leader || !a.Self || a.ContactAt != nil ||
		b.Name != "edge-b" || b.State != manage.EdgeServing || b.Leader || b.Self {
		t.Errorf("edges: %s", answer.Body)
	}
	drains := func() bool { e, _ := g.store.FindEdge("edge-a"); return e.Draining }
	if answer := g.do("POST", "/edges/edge-a/drain", "{}"); answer.Code != http.StatusOK ||
		!strings.Contains(answer.Body.String(), `"state":"draining"`) || !drains() {
		t.Errorf("drain: %d %s, %v", answer.Code, answer.Body, drains())
	}
	if status := want[manage.Status](g, 200, "GET", "/status", ""); len(status.Edges) != 2 ||
		status.Edges[0].State != manage.EdgeDraining || !status.Edges[0].Self {
		t.Errorf("status: %+v", status)
	}
	if answer := g.do("POST", "/edges/edge-a/undrain", "{}"); answer.Code != http.StatusOK || drains() {
		t.Errorf("undrain: %d %s, %v", answer.Code, answer.Body, drains())
	}
	g.refused(operator, http.StatusNotFound, "POST", "/edges/nosuch/drain", "{}", "the cluster has no edge called")
	for query, status := range map[string]int{
		"": http.StatusConflict, "?stopped=yes": http.StatusBadRequest,
		"?stopped=": http.StatusBadRequest,
	} {
		want[map[string]any](g, status, "DELETE", "/edges/edge-b"+query, "")
	}
	if answer := g.do("DELETE", "/edges/edge-b?stopped=true", ""); answer.Code != http.StatusOK ||
		len(g.store.Edges()) != 1 {
		t.Errorf("remove: %d %s, %v", answer.Code, answer.Body, g.store.Edges())
	}
	for _, operation := range []string{"edge.drain", "edge.undrain", "edge.remove"} {
		if !strings.Contains(g.log.String(), `"operation":"`+operation+`"`) {
			t.Errorf("the log lacks %s", operation)
		}
	}
}

// Each state of an edge has its times, and its words.
func TestEdgeStates(t *testing.T) {
	c := &fakeCluster{}
	g := newGatewayIn(t, c)
	c.start(g)
	at, until := time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
	for _, tt := range []struct {
		name        string
		contact     store.Contact
		state, text string
	}{
		{"edge-a", store.Contact{Until: until}, manage.EdgeServing, "serving"},
		{"edge-a", store.Contact{Last: at, Until: until}, manage.EdgeWithoutStore, "serving without the store"},
		{"edge-a", store.Contact{Last: at, Until: at}, manage.EdgeLost, "lost"},
		{"edge-b", store.Contact{Last: at, Until: until}, manage.EdgeWithoutStore, "may serve without the store"},
		{"edge-b", store.Contact{Last: at, Until: at}, manage.EdgeLost, "lost"},
		{"edge-b", store.Contact{Unknown: true}, manage.EdgeUnknown, "unknown"},
	} {
		c.contacts = map[string]store.Contact{tt.name: tt.contact}
		for _, e := range want[[]manage.Edge](g, 200, "GET", "/edges", "") {
			if e.Name != tt.name {
				continue
			}
			if e.State != tt.state || e.StateText() != tt.text ||
				(e.ServesUntil != nil) != (tt.state == manage.EdgeWithoutStore) ||
				(e.ContactAt != nil) != (e.ServesUntil != nil || tt.state == manage.EdgeLost) ||
				e.ContactAt != nil && !e.ContactAt.Equal(at.Truncate(time.Second)) ||
				e.ServesUntil != nil && !e.ServesUntil.Equal(until.Truncate(time.Second)) {
				t.Errorf("%s, %+v: %+v", tt.name, tt.contact, e)
			}
		}
	}
}

// The edges belong to no account: users of accounts other than the default one do not see them.
func TestEdgesOfOthers(t *testing.T) {
	w := newWorld(t)
	for _, route := range []string{
		"GET /edges", "DELETE /edges/{name}", "POST /edges/{name}/drain",
		"POST /edges/{name}/undrain",
	} {
		for name, caller := range map[string]manage.Caller{
			"user of another account": w.other, "its token": asToken(w.other, store.AllRights), "nobody": {},
		} {
			if status, body := w.request(caller, route, ""); status != http.StatusForbidden || strings.Contains(body, "edge-a") {
				t.Errorf("%s, %s: %d %s", route, name, status, body)
			}
		}
		want := http.StatusForbidden // a token may see them
		if route == "GET /edges" {
			want = http.StatusOK
		}
		if status, body := w.request(asToken(w.mine, store.AllRights), route, ""); status != want {
			t.Errorf("%s, token: %d %s", route, status, body)
		}
	}
	if edges := w.store.Edges(); len(edges) != 2 || edges[0].Draining || edges[1].Draining {
		t.Errorf("the edges have changed: %+v", edges)
	}
	if answer := w.doAs(w.other, "GET", "/status", ""); strings.Contains(answer.Body.String(), "edge") {
		t.Errorf("status for another account: %s", answer.Body)
	}
}

// A gateway that is alone has no edges, and answers that it is not in a cluster.
func TestNoEdges(t *testing.T) {
	g := newGateway(t)
	for method, path := range map[string]string{"GET": "/edges", "POST": "/edges/a/drain", "DELETE": "/edges/a"} {
		body := map[string]string{"POST": "{}"}[method]
		answer := g.do(method, path, body)
		if answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "this gateway is not in a cluster") {
			t.Errorf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
	}
	if body := g.do("GET", "/status", "").Body.String(); strings.Contains(body, "edge") {
		t.Errorf("status: %s", body)
	}
}

// The activity has the requests of this edge, and names it.
func TestActivityOfEdges(t *testing.T) {
	c := &fakeCluster{}
	g := newGatewayIn(t, c)
	c.start(g)
	g.activity.Record(store.DefaultAccount, activity.Request{ID: "req_own", Time: time.Now()})
	found := want[manage.Requests](g, 200, "GET", "/activity", "")
	if got := ids(found); !slices.Equal(got, []string{"req_own"}) || found.Edge != "edge-a" {
		t.Errorf("%q of %q", got, found.Edge)
	}
	w := g.do("GET", "/activity/req_other", "")
	if w.Code != 404 || !strings.Contains(w.Body.String(), "at this gateway") {
		t.Errorf("a request at another edge: %d %s", w.Code, w.Body)
	}
}

// ids returns the ids of requests.
func ids(found manage.Requests) []string {
	ids := []string{}
	for _, r := range found.Requests {
		ids = append(ids, r.ID)
	}
	return ids
}
