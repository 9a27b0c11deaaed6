package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

const limit = 60 * time.Second

// A gateway is an edge in the test process. Requests at this edge use the model "m-NAME", which a connector
// has from the model server.
type gateway struct {
	*harness.Gateway
	name string
	up   *upstream.Server
}

// inEtcd returns the options of an edge with its store in etcd. name may contain more options of the edge.
func inEtcd(name string, urls ...string) harness.Options {
	return harness.Options{
		Storage: "etcd {\n endpoints " + strings.Join(urls, " ") + "\n}",
		App:     "edge {\n name " + name + "\n}",
	}
}

// chat sends a request for the edge's model and returns the status.
func (g *gateway) chat(t *testing.T, client *harness.Client) int {
	t.Helper()
	a := client.Post(t, harness.Chat("m-"+g.name, ""))
	return a.Status
}

// await waits until a request at the edge gets this status.
func (g *gateway) await(t *testing.T, client *harness.Client, status int, what string) {
	t.Helper()
	harness.Poll(t, limit, what, func(context.Context) error {
		if got := g.chat(t, client); got != status {
			return fmt.Errorf("status %d at %s", got, g.name)
		}
		return nil
	})
}

// startEdges starts edges that refer connectors to each other, and one connector. "m-NAME" is its model for
// requests at an edge.
func startEdges(t *testing.T, etcd servers, names ...string) (edges map[string]*gateway, con *harness.Connector) {
	t.Helper()
	edges = map[string]*gateway{}
	up := upstream.Start(t)
	up.Handle("", upstream.Echo)
	for _, name := range names {
		o := inEtcd(name+"\n advertise $UDP", etcd.urls()...)
		edges[name] = &gateway{Gateway: harness.Start(t, o), name: name, up: up}
	}
	first := edges[names[0]]
	con = first.Connector(t, "box", up.URL)
	for _, name := range names {
		first.Deploy(t, "m-"+name, "box", "", "m")
	}
	return edges, con
}

// tunnelAt reports whether an edge has a tunnel of the connector.
func (g *gateway) tunnelAt(ctx context.Context, con *harness.Connector) (bool, error) {
	list, err := g.Connectors(ctx)
	for _, c := range list {
		if c.ID == con.ID {
			return c.State == "online", err
		}
	}
	return false, err
}

// awaitTunnels waits until the connector has a tunnel to each of the edges.
func awaitTunnels(t *testing.T, edges map[string]*gateway, con *harness.Connector) {
	t.Helper()
	harness.Poll(t, limit, "a tunnel to each edge", func(ctx context.Context) error {
		for name, g := range edges {
			if up, err := g.tunnelAt(ctx, con); err != nil || !up {
				return fmt.Errorf("at %s: %t, %w", name, up, err)
			}
		}
		return nil
	})
}

// short returns the second value with -short, and otherwise the first.
func short[T any](long, short T) T {
	if testing.Short() {
		return short
	}
	return long
}
