package edge

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/cluster"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// TestMembers: connectors are sent to the edges that serve and have an address.
func TestMembers(t *testing.T) {
	edge := func(name string, change func(*store.EdgeState)) store.EdgeState {
		e := store.EdgeState{
			Edge:   store.Edge{Name: name, Advertise: name + ":7443", StartedAt: time.Unix(1, 0)},
			Report: &store.Report{},
		}
		if change != nil {
			change(&e)
		}
		return e
	}
	edges := []store.EdgeState{
		edge("a", func(e *store.EdgeState) { e.Draining = true }),
		edge("b", nil),
		edge("c", func(e *store.EdgeState) { e.Advertise = "" }),
		edge("d", func(e *store.EdgeState) { e.Report = nil }),
	}
	self := &Edge{Cluster: cluster.New(cluster.Options{Edge: store.Edge{Name: "a"}})}
	want := tunnel.Members{
		Name:  "a",
		Edges: []link.Edge{{Name: "b", Server: "b:7443", StartedMillis: 1000}},
	}
	if got := self.members(edges); !reflect.DeepEqual(got, want) || got.Excess() != nil {
		t.Errorf("members %+v, want %+v", got, want)
	}
	edges = nil
	for i := range link.MaxEdges + 1 {
		edges = append(edges, edge(fmt.Sprint("edge-", i+1), nil))
	}
	if got := self.members(edges).Excess(); !slices.Equal(got, []string{"edge-9"}) {
		t.Errorf("edges without tunnels: %q", got)
	}
}

// TestShares: edges that serve divide places in the order of their names, and each has at least one.
func TestShares(t *testing.T) {
	edge := func(name string) store.EdgeState {
		return store.EdgeState{Edge: store.Edge{Name: name}, Report: &store.Report{}}
	}
	drains, joins := edge("b"), edge("c")
	drains.Draining, joins.Report = true, nil
	three := []store.EdgeState{edge("a"), edge("b"), edge("c")}
	for _, test := range []struct {
		edges  []store.EdgeState
		places int
		want   []int // of a, b and c
	}{
		{three, 7, []int{3, 2, 2}},
		{three, 6, []int{2, 2, 2}},
		{three, 8, []int{3, 3, 2}},
		{three, 1, []int{1, 1, 1}},
		{[]store.EdgeState{edge("a"), drains, edge("c")}, 7, []int{4, 3, 3}},
		{[]store.EdgeState{edge("a"), edge("b"), joins}, 4, []int{2, 2, 1}},
		{nil, 4, []int{4, 4, 4}}, // before the first report
	} {
		var got []int
		for _, name := range []string{"a", "b", "c"} {
			got = append(got, shareOf(test.edges, name).divide(test.places))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("of %d places, %d edges have %v, want %v", test.places, len(test.edges), got, test.want)
		}
	}
}
