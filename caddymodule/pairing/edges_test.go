package pairing_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/storetest"
)

// A code that was created at another edge works. While the store does not answer, devices retry, and
// their codes do not count as wrong.
func TestCodeOfAnotherEdge(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, t.TempDir()+"/gateway.db")
	a, _ := storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
	b, edge := storetest.OpenEdge(t, kv, store.Options{Edge: "b"})
	one, two := &bench{T: t, store: a}, &bench{T: t, store: b}
	for _, b := range []*bench{one, two} {
		b.newService()
		defer b.service.Close()
	}
	p, code := one.start()
	edge.Cut(true)
	for range 10 {
		if deny := two.refused(device(code, "box"), link.DenyUnavailable); !deny.Retry {
			t.Fatalf("a final refusal: %v", deny)
		}
	}
	edge.Cut(false)
	ticket := two.claim(device(code, "box"))
	defer ticket.Release()
	one.approve(p.ID)
	two.refused(device("PAIR-ZZZZ-ZZZZ", "box"), link.DenyPairingUnknown)
}

// Peers receive the facts about pairings that only one gateway knows, until their connection to it ends.
func TestTold(t *testing.T) {
	inBubble(t, func(one *bench) {
		one.service.Close()
		two := &bench{T: one.T, store: one.store}
		two.newService()
		defer two.service.Close()
		ctx, disconnect := context.WithCancel(context.Background())
		receive := two.service.OnPairing(ctx)
		one.publish = func(m link.Pairing) { receive(m) }
		one.newService()
		changes := 0
		two.service.Subscribe(func(string) { changes++ })
		expect := func(what, id, code string, connected bool) {
			one.Helper()
			synctest.Wait()
			got, _ := two.service.Code(id)
			if is := two.service.Connected(id); got != code || is != connected || changes == 0 {
				one.Errorf("%s: code %q, connected %v, %d changes", what, got, is, changes)
			}
			changes = 0
		}

		p, code := one.start()
		expect("started", p.ID, code, false)
		ticket := one.claim(device(code, "box"))
		expect("a device", p.ID, code, true)
		ticket.Release()
		expect("it has left", p.ID, code, false)
		ticket = one.claim(device(code, "box"))
		disconnect()
		expect("without the peer", p.ID, "", false)
		receive = two.service.OnPairing(context.Background())
		for _, m := range one.service.Pairings() {
			receive(m)
		}
		expect("a new connection", p.ID, code, true)
		ticket.Release()
		one.deny(p.ID)
		expect("denied", p.ID, "", false)

		next, right := one.start()
		for range 5 {
			one.refused(device("PAIR-ZZZZ-ZZZZ", "box"), link.DenyPairingUnknown)
		}
		two.refused(device(right, "box"), link.DenyPairingLimit)
		expect("wrong codes", next.ID, right, false)
	})
}
