package cluster_test

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/caught"
)

// After a panic where an edge reports, it refuses requests until it has joined the cluster again, and
// so it does while that panics. Its report stays, as requests run that a later revocation has to end.
func TestPanicOfReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.start("a", time.Minute), r.start("b", time.Minute)
		id, secret := r.key(a)
		time.Sleep(20 * time.Second)
		var ended atomic.Bool
		key, _ := b.FindKey(secret)
		key.Begin(netip.Addr{}, func(store.Refusal) { ended.Store(true) })
		prefix := "edge_reports/"
		b.panics.Store(&prefix)
		time.Sleep(5 * time.Second)
		r.log.Expect(t, "staying in the cluster", 1)
		stuck := make(chan struct{})
		go b.CutOff(errLine, func() { <-stuck })
		for i := range 20 {
			if b.Serving() == nil {
				t.Fatal("the edge accepts requests without a report")
			}
			if i == 2 {
				if err := a.revoke(t.Context(), id); err == nil && !ended.Load() {
					t.Fatal("a revocation is confirmed while a request runs")
				}
			}
			time.Sleep(time.Second)
		}
		close(stuck)
		b.panics.Store(nil)
		if took := r.until(func() bool { return b.Serving() == nil }); took > 15*time.Second || b.accepts(secret) {
			t.Errorf("it serves after %v", took)
		}
		if err := a.revoke(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
}

// After a panic while an edge reads its clocks, it reads them again.
func TestPanicOfClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start("a", time.Minute)
		_, secret := r.key(a)
		key, _ := a.FindKey(secret)
		key.Begin(netip.Addr{}, func(store.Refusal) { panic(caught.Secret) })
		a.set(false)
		time.Sleep(2 * time.Minute)
		r.log.Expect(t, "ending the requests of a key", 1)
		var ended atomic.Bool
		a.set(true)
		r.until(func() bool { return a.Serving() == nil })
		key.Begin(netip.Addr{}, func(store.Refusal) { ended.Store(true) })
		r.log.PanicAt("for on_store_loss")
		a.set(false)
		time.Sleep(2 * time.Minute)
		r.log.Expect(t, "reading the clocks", 1)
		if !ended.Load() {
			t.Error("a request goes on")
		}
	})
}
