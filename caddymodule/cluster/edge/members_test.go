package edge

import (
	"reflect"
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
		e := store.EdgeState{Edge: store.Edge{Name: name, Advertise: name + ":7443", Region: "eu"}, Report: &store.Report{}}
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
		Name: "a", Region: "eu", Draining: true,
		Edges: []link.Edge{{Name: "b", Server: "b:7443", Region: "eu"}},
	}
	if got := self.members(edges); !reflect.DeepEqual(got, want) {
		t.Errorf("members %+v, want %+v", got, want)
	}
}

// TestAddresses: a process that has not joined dials no edge, as the edges know another process by its name.
func TestAddresses(t *testing.T) {
	process := store.Edge{Name: "a", Instance: "1", StartedAt: time.Unix(1, 0)}
	other := store.EdgeState{Edge: store.Edge{Name: "b", Peer: "b:7443"}}
	former := store.EdgeState{Edge: store.Edge{Name: "a", Instance: "1", StartedAt: time.Unix(0, 0), Peer: "a:7443"}}
	if got := addresses([]store.EdgeState{former, other}, process); len(got) != 0 {
		t.Errorf("before it has joined, it dials %v", got)
	}
	want := map[string]string{"b": "b:7443"}
	if got := addresses([]store.EdgeState{{Edge: process}, other}, process); !reflect.DeepEqual(got, want) {
		t.Errorf("it dials %v, want %v", got, want)
	}
}
