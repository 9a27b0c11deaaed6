package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// startOwner returns the owners for a gateway in a cluster with b, the queues of b, where a
// deployment may run so many requests, and a function that ends b's connections.
func startOwner(t testing.TB, limit int) (*owners, *queue.Queues, func()) {
	t.Helper()
	c := newTestCluster(t)
	gateways := map[string]*Edge{}
	var o *owners
	for _, name := range []string{"b", "a"} {
		socket := c.socket()
		st, edge := c.open(name, socket.LocalAddr().String())
		edge.services = &gateway.Services{Backend: &serve.Backend{Queues: queue.New(func(queue.Name) int { return limit })}}
		edge.services.Queues.Limit(someLimits{}, slog.New(slog.DiscardHandler))
		edge.services.Queues.Share(&owners{edge: edge, store: st, logger: slog.New(slog.DiscardHandler)})
		hub := c.listen(socket, tunnel.Options{Peers: withoutPairings{edge}, Members: func() tunnel.Members { return edge.members(st.Edges()) }})
		hub.MembersChanged()
		edge.hub.Store(hub)
		gateways[name], o = edge, &owners{edge: edge, store: st, logger: slog.New(slog.DiscardHandler)}
	}
	wait.Until(t, "a connection of b", func() bool {
		gateways["b"].Follow()
		stream, err := o.edge.hub.Load().Open("b")
		if err == nil {
			loan{stream: stream}.Settle(limits.Used{})
		}
		return err == nil
	})
	return o, gateways["b"].services.Queues, gateways["b"].Links.Close
}

// withoutPairings is a gateway that has none.
type withoutPairings struct{ *Edge }

func (withoutPairings) Pairings() []link.Pairing { return nil }

func (withoutPairings) OnPairing(context.Context) func(link.Pairing) { return func(link.Pairing) {} }

// enters is a request for the deployment of startOwner.
func enters(b queue.Bounds) queue.Request {
	return queue.Request{Name: queue.Name{Account: "default", Deployment: "m"}, Key: "key_1", Bounds: b}
}

// TestEnter has requests enter the queue of a peer.
func TestEnter(t *testing.T) {
	t.Parallel()
	o, queues, end := startOwner(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	long := queue.Bounds{Length: 1, Wait: patience}
	place, err := o.Enter(t.Context(), "b", enters(long))
	if err != nil || place.Waited() || place.Lost() {
		t.Fatalf("the first request: %+v, %v", place, err)
	}
	expect := func(what string, b queue.Bounds, want error) {
		t.Helper()
		if _, err := o.Enter(ctx, "b", enters(b)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	waiting := func(want int) {
		t.Helper()
		wait.Until(t, fmt.Sprint(want, " waiting requests"), func() bool {
			n := -1
			queues.Lengths(func(_ queue.Name, waiting int) { n = waiting })
			return n == want
		})
	}
	expect("without a wait", queue.Bounds{Length: -1}, queue.ErrFull)
	expect("after a short wait", queue.Bounds{Length: 1, Wait: 20 * time.Millisecond}, queue.ErrTimeout)
	var others sync.WaitGroup
	others.Go(func() { expect("a client that leaves", long, context.Canceled) })
	waiting(1)
	cancel()
	others.Wait()
	waiting(0)

	again := enters(long)
	again.Running = true
	second, err := o.Enter(t.Context(), "b", again)
	if err != nil {
		t.Fatalf("a request that runs: %v", err)
	}
	place.Settle(limits.Used{})
	var last queue.Loan
	others.Go(func() {
		if last, err = o.Enter(t.Context(), "b", enters(long)); err != nil || !last.Waited() {
			t.Errorf("a request that waits: %+v, %v", last, err)
		}
	})
	waiting(1)
	second.Settle(limits.Used{})
	others.Wait()
	if _, err := o.Enter(t.Context(), "c", enters(long)); err == nil {
		t.Error("a gateway that does not exist gives a place")
	}
	others.Go(func() {
		if _, err := o.Enter(t.Context(), "b", enters(long)); err == nil || errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrTimeout) {
			t.Errorf("a request that waits at a peer that is lost: %v", err)
		}
	})
	waiting(1)
	end()
	others.Wait()
	wait.Until(t, "the loss of the place", last.Lost)
	waiting(0)
	wait.Until(t, "the place of the lost request", func() bool {
		_, err := queues.EnterHere(t.Context(), enters(queue.Bounds{Length: -1}))
		return err == nil
	})
}

// someLimits are the limits of each key.
type someLimits struct{}

func (someLimits) LimitsOf(string, string) (ofAccount, ofKey limits.UsageLimits) {
	return limits.UsageLimits{TokensPerDay: 1000}, limits.UsageLimits{TokensPerMinute: 100}
}

func (someLimits) SumsOf(context.Context, string, string) (day, month limits.Sums, err error) {
	return limits.Sums{Tokens: 7}, limits.Sums{Tokens: 70}, nil
}

func (someLimits) Crossed(string, string, limits.Crossing) {}

// TestEnterLimited has requests pass the limits that a peer counts.
func TestEnterLimited(t *testing.T) {
	t.Parallel()
	o, queues, _ := startOwner(t, 0)
	r := queue.Request{Name: queue.Name{Account: "default"}, Key: "key_1", Need: queue.Need{Cost: limits.Cost{Input: 60, Output: 30}}}
	look := func() limits.Look {
		t.Helper()
		asked := r
		asked.Look = true
		place, err := queues.EnterHere(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		return place.Look()
	}
	used := func() int64 { return look().States[0].Used }
	place, err := o.Enter(t.Context(), "b", r)
	if err != nil || len(place.Look().States) != 2 || place.Look().States[0].Used != 97 {
		t.Fatalf("the first request: %+v, %v", place, err)
	}
	_, err = o.Enter(t.Context(), "b", r)
	refused, _ := errors.AsType[*limits.Refusal](err)
	if refused == nil || refused.Limit != limits.TokensPerMinute || refused.Of != limits.OfKey || refused.Wait() < time.Second || len(refused.States) != 2 {
		t.Errorf("the second request: %+v, %v", refused, err)
	}
	// What is read only after the request may include it, and is not added to it.
	wait.Until(t, "the sums", func() bool { l := look(); return l.Day.Tokens == 7 && l.Month.Tokens == 70 })
	place.Settle(limits.Used{Requests: 1, Tokens: 20, Output: 5, BusyMillis: 3})
	wait.Until(t, "what was used", func() bool { return used() == 27 })

	if place, err = o.Enter(t.Context(), "b", r); err != nil {
		t.Fatal(err)
	}
	place.Settle(limits.Used{})
	wait.Until(t, "the return of what was reserved", func() bool { return used() == 27 })

	r.Look = true
	if place, err = o.Enter(t.Context(), "b", r); err != nil || place.Look().Day.Tokens != 27 || place.Look().Month.Tokens != 90 {
		t.Errorf("a look: %+v, %v", place, err)
	}
	place.Settle(limits.Used{})
}

// BenchmarkEnter measures a place without a cluster, at the gateway that is the owner, and at a
// peer: both ends are then in this process.
func BenchmarkEnter(b *testing.B) {
	const limit = 64
	o, _, _ := startOwner(b, limit)
	alone := queue.New(func(queue.Name) int { return limit })
	shared := queue.New(func(queue.Name) int { return limit })
	shared.Share(o)
	owned := func(by string) (n queue.Name) {
		for i, owner := 0, "none"; owner != by; i++ {
			n = queue.Name{Account: "default", Deployment: fmt.Sprint("m", i)}
			owner, _ = o.Owner(n)
		}
		return n
	}
	time.Sleep(2 * time.Second) // until the owners are settled
	for _, row := range []struct {
		name    string
		clients int // for each processor
		queues  *queue.Queues
		at      queue.Name
	}{{"alone", 1, alone, owned("")}, {"owner", 1, shared, owned("")}, {"peer", 1, shared, owned("b")}, {"peer-8", 8, shared, owned("b")}} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(row.clients)
			b.RunParallel(func(clients *testing.PB) {
				for clients.Next() {
					place, err := row.queues.Enter(b.Context(), row.at, fair.Client{Key: "key_1"}, queue.Bounds{})
					if err != nil {
						b.Error(err)
						return
					}
					place.Settle(limits.Used{})
				}
			})
		})
	}
}
