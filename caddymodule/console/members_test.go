package console

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// edges is the cluster of this edge, edge-a.
type edges struct {
	store    *store.Store
	contacts map[string]store.Contact
}

func (*edges) Name() string       { return "edge-a" }
func (*edges) LeaderName() string { return "edge-a" }

func (e *edges) Contact(name string) store.Contact { return e.contacts[name] }

func (e *edges) Remove(ctx context.Context, name string, stopped bool) error {
	if !stopped {
		return store.Errorf(store.ErrInUse, "the edge %s may accept requests", name)
	}
	lost, _ := e.store.FindEdge(name)
	return e.store.RemoveEdge(ctx, lost.Edge)
}

func TestEdges(t *testing.T) {
	cluster := &edges{}
	h := newHouseIn(t, cluster)
	cluster.store = h.store
	for name, version := range map[string]string{"edge-a": "v9.9.10", "edge-b": mean} {
		must(t, h.store.AddEdge(t.Context(),
			store.Edge{Name: name, Instance: name, Version: version}))
	}
	k, _, err := h.store.CreateKey(t.Context(), "default", store.KeyFields{
		Name: "limited", Scope: "*", Limits: limits.UsageLimits{TokensPerDay: 100},
	})
	must(t, err)
	b := h.in(h.user("default", "ada"))
	page := b.page("/console/edges")
	plain(t, page)
	has(t, page, "2 of 2 serving", "edge-a", "leader, this edge", "no address",
		`<a href="/console/edges" aria-current="page">Edges</a>`)
	b.goes(b.post("/console/edges/edge-b/drain"), "/console/edges")
	has(t, b.page("/console/edges"), "edge-b drains", "1 of 2 serving", "/console/edges/edge-b/undrain")
	b.goes(b.post("/console/edges/edge-b/undrain"), "/console/edges")
	has(t, b.page("/console/edges"), "edge-b is ready again", "2 of 2 serving")
	b.refused(b.post("/console/edges/nosuch/drain"), http.StatusNotFound, "The cluster has no edge called")

	b.refused(b.get("/console/edges/edge-b/remove"), http.StatusNotFound, "it has contact with the store")
	at, until := time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
	cluster.contacts = map[string]store.Contact{"edge-b": {Last: at, Until: until}}
	has(t, b.page("/console/edges"), "1 of 2 serving", ">may serve without the store</span>", "until",
		"/console/edges/edge-b/remove")
	has(t, b.page("/console/home"), "Gateway edge-b: may serve without the store until", "1 of 2")
	has(t, b.page("/console/edges/edge-b/remove"), "Remove edge-b?", "Until then, it may accept requests",
		`name="stopped"`)
	b.refused(b.post("/console/edges/edge-b/remove"), http.StatusConflict, "may accept requests")
	cluster.contacts["edge-b"] = store.Contact{Last: at, Until: at}
	has(t, b.page("/console/edges"), ">lost</span>", "since")
	has(t, b.page("/console/home"), "Gateway edge-b: lost since")
	page = b.page("/console/edges/edge-b/remove")
	has(t, page, "accepts no requests")
	lacks(t, page, `name="stopped"`)
	cluster.contacts = map[string]store.Contact{"edge-a": {Last: at, Until: until}, "edge-b": {Unknown: true}}
	page = b.page("/console/edges")
	has(t, page, "1 of 2 serving, 1 unknown", ">serving without the store</span>", ">unknown</span>",
		"This edge, edge-a, has had no contact with the store since", "and serves without it until",
		"shows the others as they were at that time")
	lacks(t, mainOf(page), "lost<", "/remove", "/drain")
	page = b.page("/console/home")
	has(t, page, "Gateway edge-a: serving without the store until", "use is not known", "1 of 2")
	lacks(t, mainOf(page), "lost", "edge-b")
	for _, path := range []string{"/console/models", "/console/keys", "/console/keys/" + k.ID} {
		has(t, b.page(path), "use is not known")
	}
	cluster.contacts = map[string]store.Contact{"edge-b": {Last: at, Until: until}}
	b.goes(b.post("/console/edges/edge-b/remove", "stopped", "true"), "/console/edges")
	cluster.contacts = nil
	page = b.page("/console/edges")
	has(t, page, "1 of 1 serving", "edge-b is removed")
	lacks(t, mainOf(page), "<td data-label=\"Name\"><span><strong>edge-b<")

	must(t, errOf(h.store.CreateAccount(t.Context(), "other")))
	o := h.in(h.user("other", "olga"))
	lacks(t, o.page("/console/models"), "/console/edges")
	o.refused(o.get("/console/edges"), http.StatusForbidden, "Only operators and users of the account")
	o.refused(o.post("/console/edges/edge-a/drain"), http.StatusForbidden, "Only operators and users of the account")
}

// A gateway that is alone has no page of edges.
func TestNoEdges(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user("default", "ada"))
	lacks(t, b.page("/console/models"), "/console/edges")
	b.refused(b.get("/console/edges"), http.StatusConflict, "This gateway is not in a cluster")
}
