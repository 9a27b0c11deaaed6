package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// startEdges starts edges that send connectors to each other, and one connector. "m-NAME" is
// its model for requests at an edge.
func startEdges(t *testing.T, etcd servers, names ...string) (edges map[string]*gateway, con *harness.Connector) {
	t.Helper()
	edges = map[string]*gateway{}
	up := upstream.Start(t)
	up.Handle("", upstream.Echo)
	for _, name := range names {
		o := inEtcd(name+"\n advertise $UDP", etcd.urls()...)
		o.Site = "queue_wait 5m"
		edges[name] = &gateway{Gateway: harness.Start(t, o.Traced()), name: name, up: up}
	}
	first := edges[names[0]]
	con = first.Connector(t, "box", up.URL)
	for _, name := range names {
		edges[name].con = con
		first.Deploy(t, "m-"+name, "box", "", "m")
	}
	return edges, con
}

// tunnelAt reports whether an edge has a tunnel of the connector.
func (g *gateway) tunnelAt(ctx context.Context, con *harness.Connector) (bool, error) {
	list, err := g.Connectors(ctx)
	for _, c := range list {
		if c.ID == con.ID {
			return slices.Contains(c.Edges, g.name), err
		}
	}
	return false, err
}

// awaitLegs waits until the connector has tunnels to two of the edges, and returns the names
// of the edges with and without one.
func awaitLegs(t *testing.T, edges map[string]*gateway, con *harness.Connector) (with, without []string) {
	t.Helper()
	harness.Poll(t, limit, "two tunnels", func(ctx context.Context) error {
		with, without = nil, nil
		for name, g := range edges {
			up, err := g.tunnelAt(ctx, con)
			if err != nil {
				return err
			}
			if up {
				with = append(with, name)
			} else {
				without = append(without, name)
			}
		}
		if len(with) != 2 {
			return fmt.Errorf("tunnels to %v", with)
		}
		return nil
	})
	return with, without
}

// TestLegs: an edge with one of the connector's tunnels is killed. The other tunnel serves all
// the time, and the third edge gets a tunnel. An edge that drains is left.
func TestLegs(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	edges, con := startEdges(t, etcd, "a", "b", "c")
	with, without := awaitLegs(t, edges, con)
	_, key := edges["a"].Key(t, "key", "*")
	killed, other, third := edges[with[0]], edges[with[1]], edges[without[0]]
	other.await(t, other.Client(t, key), http.StatusOK, "the other edge")
	l := startLoad(t, key, other)
	killed.Process.Signal(t, syscall.SIGKILL)
	killed.Process.WaitExit(t, limit)
	third.await(t, third.Client(t, key), http.StatusOK, "a tunnel to the third edge")
	l.wait(&l.taken, 10, "requests at the other edge")
	killed.Restart(t)
	if with, _ := awaitLegs(t, edges, con); len(with) != 2 {
		t.Errorf("tunnels to %v", with)
	}

	var drained any
	third.Manage(t, http.MethodPost, "/edges/"+third.name+"/drain", struct{}{}, &drained)
	killed.await(t, killed.Client(t, key), http.StatusOK, "a tunnel to the edge that is back")
	harness.Poll(t, limit, "the end of the tunnel to the edge that drains", func(ctx context.Context) error {
		up, err := third.tunnelAt(ctx, con)
		if up {
			err = errors.New("it is up")
		}
		return err
	})
	l.end()
}
