package pairing_test

import (
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/storetest"
)

// A code that was made at another edge works. While the store does not answer, devices come
// again, and their codes do not count as wrong.
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
