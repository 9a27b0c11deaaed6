package console

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// edgesTab lists the edges of the cluster. It is rendered periodically, because changes of edges do not belong to an
// account.
var edgesTab = &tab{
	path: "edges", name: "edges", title: "Edges", data: edgesData, live: []string{"edges-list"}, refresh: 5 * time.Second,
}

var removeEdgeTab = askTab("edges/{id}/remove", "edge-remove", "Remove an edge", func(v *visit) manage.Edge {
	removable := func(e manage.Edge) bool { return e.Name == v.id() && !e.Self && e.ContactAt != nil }
	return find(v, v.Manage.Edges, removable, "The edge does not exist, or it has contact with the store.")
})

type edgesPage struct {
	Edges            []manage.Edge
	Serving, Unknown int
	Self             manage.Edge
}

func edgesData(v *visit) any {
	p := &edgesPage{Edges: load(v, v.Manage.Edges)}
	for _, e := range p.Edges {
		if e.Self {
			p.Self = e
		}
		switch {
		case e.State == manage.EdgeServing, e.State == manage.EdgeWithoutStore && e.Self:
			p.Serving++
		case e.State == manage.EdgeUnknown:
			p.Unknown++
		}
	}
	return p
}

func removeEdge(v *visit) error {
	e, err := v.Manage.RemoveEdge(v.ctx, manage.RemoveEdge{Edge: v.id(), Stopped: v.typed("stopped")})
	return v.done(edgesTab.url(), e.Name+" is removed.", err)
}
