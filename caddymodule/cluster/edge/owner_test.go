package edge

import (
	"context"
	"fmt"
	"testing"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// startOwners starts the gateways a and b of a cluster, where a deployment may run so many requests.
func startOwners(t testing.TB, limit int) (a, b *Edge) {
	t.Helper()
	c := newTestCluster(t)
	start := func(name string) *Edge {
		socket := c.socket()
		st, edge := c.open(name, socket.LocalAddr().String())
		queues := queue.New(func(queue.Name) int { return limit })
		edge.Start(&gateway.Services{Backend: &serve.Backend{Store: st, Queues: queues}})
		edge.Listening(c.listen(socket, tunnel.Options{Peers: edge, Members: edge.Members}))
		return edge
	}
	a, b = start("a"), start("b")
	wait.Until(t, "a connection of b", func() bool {
		stream, err := a.Open("b")
		if err == nil {
			link.Refuse(stream, link.CodeNone)
		}
		return err == nil && len(a.services.Store.Edges()) == 2
	})
	return a, b
}

// withoutPairings is a gateway that has none.
type withoutPairings struct{ *Edge }

func (withoutPairings) Pairings() []link.Pairing { return nil }

func (withoutPairings) OnPairing(context.Context) func(link.Pairing) { return func(link.Pairing) {} }

// ownedBy returns a deployment whose owner is b, or a.
func ownedBy(t testing.TB, a, b *Edge, owner *Edge) queue.Name {
	t.Helper()
	for i := range 100 {
		n := queue.Name{Account: "default", Deployment: fmt.Sprint("m", i)}
		place, err := a.services.Queues.Enter(t.Context(), n, fair.Client{Key: "key_1"}, queue.Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		atB := false
		b.services.Queues.Lengths(func(in queue.Name, _ int) { atB = atB || in == n })
		place.Leave()
		if atB == (owner == b) {
			return n
		}
	}
	t.Fatal("no deployment has this owner")
	return queue.Name{}
}

// BenchmarkEnter measures a permit without a cluster, at the gateway that is the owner, and at a
// peer: both ends are then in this process.
func BenchmarkEnter(t *testing.B) {
	const limit = 64
	a, b := startOwners(t, limit)
	alone, shared := queue.New(func(queue.Name) int { return limit }), a.services.Queues
	here, there := ownedBy(t, a, b, a), ownedBy(t, a, b, b)
	for _, row := range []struct {
		name    string
		clients int // for each processor
		queues  *queue.Queues
		at      queue.Name
	}{{"alone", 1, alone, here}, {"owner", 1, shared, here}, {"peer", 1, shared, there}, {"peer-8", 8, shared, there}} {
		t.Run(row.name, func(t *testing.B) {
			t.ReportAllocs()
			t.SetParallelism(row.clients)
			t.RunParallel(func(clients *testing.PB) {
				for clients.Next() {
					place, err := row.queues.Enter(t.Context(), row.at, fair.Client{Key: "key_1"}, queue.Bounds{})
					if err != nil {
						t.Error(err)
						return
					}
					place.Leave()
				}
			})
		})
	}
}
