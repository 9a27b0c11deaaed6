package console

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// edges is a cluster in which all edges but this one, edge-a, are lost if the test says so.
type edges struct {
	store  *store.Store
	lost   time.Time
	report activity.Report // of edge-b, about the default account
	silent []string
}

func (*edges) Name() string         { return "edge-a" }
func (*edges) LeaderName() string   { return "edge-a" }
func (*edges) Stale() time.Duration { return time.Second }

func (e *edges) Reports(_ context.Context, account string) (map[string]activity.Report, []string) {
	if account != store.DefaultAccount {
		return nil, e.silent
	}
	return map[string]activity.Report{"edge-b": e.report}, e.silent
}

func (e *edges) Contact(name string) store.Contact {
	if name == "edge-a" {
		return store.Contact{}
	}
	return store.Contact{Last: e.lost}
}

func (e *edges) Remove(ctx context.Context, name string, _ bool) error {
	lost, _ := e.store.FindEdge(name)
	return e.store.RemoveEdge(ctx, lost.Edge)
}

func TestEdges(t *testing.T) {
	cluster := &edges{}
	h := newHouseIn(t, cluster)
	cluster.store = h.store
	for name, region := range map[string]string{"edge-a": "eu", "edge-b": mean} {
		if _, err := h.store.AddEdge(t.Context(), store.Edge{Name: name, Instance: name, Region: region, Version: "v1.2.3", Peer: "10.0.0.7:7443"}); err != nil {
			t.Fatal(err)
		}
	}
	b := h.in(h.user("default", "ada"))
	page := b.page("/console/edges")
	plain(t, page)
	has(t, page, "2 of 2 serving", "edge-a", "eu, leader, this edge", "10.0.0.7:7443", "a balancer", `<a href="/console/edges" aria-current="page">Edges</a>`)
	b.goes(b.post("/console/edges/edge-b/drain"), "/console/edges")
	has(t, b.page("/console/edges"), "edge-b drains", "1 of 2 serving", "/console/edges/edge-b/undrain")
	b.goes(b.post("/console/edges/edge-b/undrain"), "/console/edges")
	has(t, b.page("/console/edges"), "edge-b is ready again", "2 of 2 serving")
	b.refused(b.post("/console/edges/nosuch/drain"), http.StatusNotFound, "the cluster has no edge called")

	cluster.lost = time.Now().Add(-time.Minute)
	has(t, b.page("/console/edges"), ">lost</span>", "since", "/console/edges/edge-b/remove")
	b.goes(b.post("/console/edges/edge-b/remove"), "/console/edges")
	page = b.page("/console/edges")
	has(t, page, "1 of 1 serving", "edge-b is removed")
	lacks(t, mainOf(page), "<td data-label=\"Name\"><span><strong>edge-b<")

	if _, err := h.store.CreateAccount(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	o := h.in(h.user("other", "olga"))
	lacks(t, o.page("/console/models"), "/console/edges")
	o.refused(o.get("/console/edges"), http.StatusForbidden, "Only operators and users of the account")
	o.refused(o.post("/console/edges/edge-a/drain"), http.StatusForbidden, "Only operators and users of the account")
}

// An edge that has lost the store says that its list is old.
func TestEdgesOfLostEdge(t *testing.T) {
	var page strings.Builder
	data := &edgesPage{Self: manage.EdgeStatus{Name: "edge-a", State: manage.EdgeLost, ContactAt: time.Now()}}
	if err := newHouse(t).console.templates[store.RoleAdmin].ExecuteTemplate(&page, "edges-list", data); err != nil {
		t.Fatal(err)
	}
	has(t, page.String(), "This edge, edge-a, has had no contact to the store since")
}

// A gateway that is alone has no page of edges.
func TestNoEdges(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user("default", "ada"))
	lacks(t, b.page("/console/models"), "/console/edges")
	b.refused(b.get("/console/edges"), http.StatusConflict, "This gateway is not in a cluster")
}
