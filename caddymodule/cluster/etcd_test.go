package cluster_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestLeaseEndsEarly ends leases early, as a leader of etcd does that was stopped for longer. An edge with
// contact refuses at once and joins again. A writer waits for L if the edge is cut off, too.
func TestLeaseEndsEarly(t *testing.T) {
	for name, cut := range map[string]bool{"with contact": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const l = time.Minute
				r := newRig(t)
				a, b := r.start("a", l), r.start("b", l)
				id, secret := r.key(a)
				time.Sleep(10*time.Second + 500*time.Millisecond)
				b.set(!cut)
				lease := r.leases[1]
				if err := lease.Revoke(t.Context()); err != nil {
					t.Fatal(err)
				}
				noticed := func(by *edge) bool { e, _ := by.FindEdge("b"); return e.Report == nil }
				for !noticed(a) || !cut && !noticed(b) {
					time.Sleep(time.Millisecond)
				}
				if !cut && b.Serving() == nil {
					t.Error("the edge serves without its report")
				}
				began := time.Now()
				var err error
				for err = a.revoke(t.Context(), id); err != nil; err = a.revoke(t.Context(), id) {
					var u *store.Unconfirmed
					if !errors.As(err, &u) || u.Pending[0].Edge != "b" || u.Pending[0].Until.Sub(began) > l+l/8 {
						t.Fatal(err)
					}
				}
				if b.accepts(secret) {
					t.Error("the edge accepts a key after its revocation was confirmed")
				}
				if took := time.Since(began); cut != (took > l/2) {
					t.Errorf("the revocation was confirmed after %v", took)
				}
				b.set(true)
				if took := r.until(func() bool { return b.Serving() == nil }); took > 3*time.Second {
					t.Errorf("the edge serves again after %v", took)
				}
			})
		})
	}
}

// TestNoSpace: edges serve on while etcd has no space for changes. One that has not reported yet does not serve.
func TestNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const l = 30 * time.Second
		r := newRig(t)
		a, b, c := r.start("a", l), r.start("b", l), r.start("c", l)
		b.fill.Store(true)
		if err := a.cluster.Remove(t.Context(), "b", true); err != nil {
			t.Fatal(err)
		}
		r.until(b.full.Load)
		a.full.Store(true)
		c.full.Store(true)
		for end := time.Now().Add(4 * l); time.Now().Before(end); time.Sleep(time.Second) {
			if err := a.Serving(); err != nil {
				t.Fatal(err)
			}
			if e, _ := a.FindEdge("b"); e.Revision == 0 || e.Report != nil || b.Serving() == nil {
				t.Fatalf("an edge without a report serves: %+v", e)
			}
			if known := a.cluster.Contact("c"); !known.Last.IsZero() || time.Until(known.Until) < l-2*time.Second {
				t.Fatalf("of an edge that cannot report: %+v", known)
			}
		}
		a.set(false)
		time.Sleep(l)
		if a.Serving() == nil {
			t.Error("the edge serves without contact, as the store had no space before")
		}
	})
}

// TestUnreadEdge: nothing is known of an edge whose record is of a later version, so no change is confirmed.
func TestUnreadEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start("a", time.Minute)
		id, _ := r.key(a)
		write := func(op store.Op) {
			t.Helper()
			if _, err := r.kv.Txn(context.Background(), store.Txn{Then: []store.Op{op}}); err != nil {
				t.Fatal(err)
			}
		}
		write(store.Put("edges/z", []byte(`{"v":1000}`)))
		write(store.Put("edge_reports/z", []byte(`{"v":1000}`)))
		var u *store.Unconfirmed
		if err := a.revoke(t.Context(), id); !errors.As(err, &u) || len(u.Pending) != 1 || u.Pending[0].Edge != "z" {
			t.Errorf("with an edge of a later version: %v", err)
		}
		write(store.Delete("edges/z"))
		write(store.Delete("edge_reports/z"))
		if err := a.revoke(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
}

// TestDrainOfEnded: a change of an edge whose lease has ended early does not end the waiting for it. Its
// next process on the same machine does, and so does an operator who knows that it has stopped.
func TestDrainOfEnded(t *testing.T) {
	for _, ends := range []string{"restart", "remove"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			a, b := r.start("a", time.Minute), r.start("b", time.Minute)
			time.Sleep(10*time.Second + 500*time.Millisecond)
			b.set(false)
			if err := r.leases[1].Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.until(func() bool { e, _ := a.FindEdge("b"); return e.Report == nil })
			drain := func(e *store.Edge) { e.Draining = true }
			if _, err := a.ChangeEdge(t.Context(), "b", drain); err != nil {
				t.Fatal(err)
			}
			id, _ := r.key(a)
			if err := a.revoke(t.Context(), id); !errors.Is(err, store.ErrUnconfirmed) {
				t.Fatalf("after the edge was drained: %v", err)
			}
			if err := a.cluster.Remove(t.Context(), "b", false); !errors.Is(err, store.ErrInUse) {
				t.Errorf("removing it: %v", err)
			}
			r.kill(b)
			if ends == "restart" {
				r.start("b", time.Minute)
			} else if err := a.cluster.Remove(t.Context(), "b", true); err != nil {
				t.Fatal(err)
			}
			if err := a.revoke(t.Context(), id); err != nil {
				t.Errorf("after %s: %v", ends, err)
			}
		})
	}
}
