package console

import (
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// edgesTab lists the edges of the cluster. It is redrawn periodically: edges belong to no
// account whose changes it gets.
var edgesTab = &tab{
	path: "edges", name: "edges", title: "Edges", data: edgesData, live: []string{"edges-list"}, every: 5 * time.Second,
}

type edgesPage struct {
	Edges   []edgeRow
	Serving int
	Self    manage.EdgeStatus
}

type edgeRow struct{ manage.Edge }

// About returns the region and the roles of an edge.
func (e edgeRow) About() string {
	var about []string
	if e.Region != "" {
		about = append(about, e.Region)
	}
	if e.Leader {
		about = append(about, "leader")
	}
	if e.Self {
		about = append(about, "this edge")
	}
	return strings.Join(about, ", ")
}

func edgesData(v *visit) any {
	p := new(edgesPage)
	if status := load(v, v.Manage.Status); status.Edge != nil {
		p.Self = *status.Edge
	}
	for _, e := range load(v, v.Manage.Edges) {
		p.Edges = append(p.Edges, edgeRow{e})
		if e.State == manage.EdgeServing {
			p.Serving++
		}
	}
	return p
}

func drainEdge(v *visit) error {
	e, err := v.Manage.DrainEdge(v.ctx, v.id())
	return v.done(edgesTab.url(), e.Name+" drains. It still serves what reaches it.", err)
}

func undrainEdge(v *visit) error {
	e, err := v.Manage.UndrainEdge(v.ctx, v.id())
	return v.done(edgesTab.url(), e.Name+" is ready again.", err)
}

func removeEdge(v *visit) error {
	e, err := v.Manage.RemoveEdge(v.ctx, v.id())
	return v.done(edgesTab.url(), e.Name+" is removed.", err)
}
