package pairing_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// A code that was created at another edge works. While the store does not answer, devices retry, and
// their codes do not count as wrong.
func TestCodeOfAnotherEdge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// Any edge shows the code of an open pairing, and that its device waits. The device can change its edge. A code works
// once at all edges together.
func TestPairingOfAnotherEdge(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, t.TempDir()+"/gateway.db")
	one, two := &bench{T: t}, &bench{T: t}
	for edge, b := range map[string]*bench{"a": one, "b": two} {
		var err error
		if b.store, err = store.New(storetest.Share(kv), store.Options{Edge: edge}); err != nil {
			t.Fatal(err)
		}
		b.newService()
		defer b.close()
	}
	p, code := one.start()
	expect := func(what, code string, here, there bool) {
		t.Helper()
		wait.Until(t, what, func() bool { return one.code(p.ID) == code && two.code(p.ID) == code })
		wait.Until(t, what, func() bool { return one.connected(p.ID) == here && two.connected(p.ID) == there })
	}
	expect("started", code, false, false)
	ticket := two.claim(device(code, "box"))
	expect("a device", code, true, true)
	ticket.Release()
	expect("it has left, which only its edge knows", code, true, false)
	ticket = one.claim(device(code, "box"))
	defer ticket.Release()
	expect("it is back at another edge", code, true, true)
	two.refused(device(code, "other"), link.DenyPairingUsed)
	two.approve(p.ID)
	wait.Until(t, "the approval", func() bool { return one.code(p.ID) == "" && two.code(p.ID) == "" })
	if got := <-ticket.Decided; got.TunnelToken == "" {
		t.Errorf("decided %+v", got)
	}

	p, code = one.start()
	expect("started", code, false, false)
	var denied [2]*link.Deny
	var both sync.WaitGroup
	for i, b := range []*bench{one, two} {
		both.Go(func() {
			ticket, deny := b.service.Claim(context.Background(), device(code, fmt.Sprint("box", i)))
			if denied[i] = deny; deny == nil {
				ticket.Release()
			}
		})
	}
	both.Wait()
	if (denied[0] == nil) == (denied[1] == nil) {
		t.Errorf("two devices at two edges: denied with %v and %v", denied[0], denied[1])
	}
}
