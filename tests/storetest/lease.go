package storetest

import (
	"errors"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

func testLeaseEnds(k *kvTest) {
	w := k.watch(store.Span{}, 0)
	start := time.Now()
	l := k.lease(k.TTL)
	if l.ID() <= 0 {
		k.Errorf("the id of a lease is %d", l.ID())
	}
	k.txn(store.Op{Key: "a", Lease: l.ID()}, store.Op{Key: "b", Lease: l.ID()}, store.Put("c", nil))
	k.gone("a")
	if d := time.Since(start); d < k.TTL*9/10 {
		k.Errorf("a lease of %v ended after %v", k.TTL, d)
	}
	if k.get("b").Exists() || !k.get("c").Exists() {
		k.Error("the lease ended and b remains, or c does not")
	}
	ended := k.next(w, 5)[3:]
	revision, _, _ := strings.Cut(ended[0], " ")
	equal(k, "events", ended, []string{revision + " -a", revision + " -b"})
	if err := l.KeepAlive(k.Context()); !errors.Is(err, store.ErrNotFound) {
		k.Errorf("keeping alive a lease that has ended: %v", err)
	}
	if err := l.Revoke(k.Context()); err != nil {
		k.Errorf("revoking a lease that has ended: %v", err)
	}
	if _, err := k.kv.(store.Leaser).Lease(k.Context(), 0); !errors.Is(err, store.ErrInvalid) {
		k.Errorf("a lease of no time: %v", err)
	}
}

func testLeaseKeptAlive(k *kvTest) {
	l := k.lease(k.TTL)
	k.txn(store.Op{Key: "a", Lease: l.ID()})
	for range 6 { // for longer than the TTL, with pauses that leave room for a slow machine
		time.Sleep(k.TTL / 4)
		if err := l.KeepAlive(k.Context()); err != nil {
			k.Fatal(err)
		}
	}
	if !k.get("a").Exists() {
		k.Error("the item is gone though its lease was kept alive")
	}
	k.gone("a")
}

func testLeaseRevoked(k *kvTest) {
	l := k.lease(time.Hour)
	k.txn(store.Op{Key: "a", Lease: l.ID()})
	if err := l.Revoke(k.Context()); err != nil {
		k.Fatal(err)
	}
	if k.get("a").Exists() {
		k.Error("the item is still there")
	}
	_, err := k.kv.Txn(k.Context(), store.Txn{Then: []store.Op{{Key: "a", Lease: l.ID()}}})
	if !errors.Is(err, store.ErrNotFound) {
		k.Errorf("put with a revoked lease: %v", err)
	}
}

// testLeaseReplaced puts and deletes leased keys again: a lease ends with the keys whose last
// put named it, and no others.
func testLeaseReplaced(k *kvTest) {
	first, second := k.lease(time.Hour), k.lease(time.Hour)
	for _, key := range []string{"kept", "moved", "recreated", "both"} {
		k.txn(store.Op{Key: key, Lease: first.ID()})
	}
	k.put("kept", "")
	k.txn(store.Op{Key: "moved", Lease: second.ID()})
	k.txn(store.Delete("recreated"))
	k.put("recreated", "")
	if err := first.Revoke(k.Context()); err != nil {
		k.Fatal(err)
	}
	for key, want := range map[string]bool{"kept": true, "moved": true, "recreated": true, "both": false} {
		if got := k.get(key).Exists(); got != want {
			k.Errorf("%s exists: %v", key, got)
		}
	}
	if err := second.Revoke(k.Context()); err != nil {
		k.Fatal(err)
	}
	if k.get("moved").Exists() || !k.get("kept").Exists() {
		k.Error("the second lease took the wrong items")
	}
}

func testLeaseRestart(k *kvTest) {
	l := k.lease(k.TTL)
	long := k.lease(time.Hour)
	k.txn(store.Op{Key: "a", Lease: l.ID()}, store.Op{Key: "b", Lease: long.ID()}, store.Put("c", nil))
	k.kv = k.Reopen(k.T, k.kv)
	k.gone("a")
	if !k.get("b").Exists() || !k.get("c").Exists() {
		k.Error("items are gone whose leases have not ended")
	}
	// Puts can still use the other lease by its id.
	k.txn(store.Op{Key: "d", Lease: long.ID()})
}

func testLeaseClosed(k *kvTest) {
	lease := k.lease(time.Hour)
	if err := k.kv.Close(); err != nil {
		k.Fatal(err)
	}
	errs := map[string]error{"keep alive": lease.KeepAlive(k.Context()), "revoke": lease.Revoke(k.Context())}
	_, errs["lease"] = k.kv.(store.Leaser).Lease(k.Context(), time.Second)
	for name, err := range errs {
		if !errors.Is(err, store.ErrClosed) {
			k.Errorf("%s: %v", name, err)
		}
	}
}
