package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestLeaseEndsEarly ends leases early, as a leader of etcd does that was stopped for longer. An edge with
// contact refuses at once and joins again. A writer waits for L if the edge is cut off, too, even if its own
// lease has ended just before.
func TestLeaseEndsEarly(t *testing.T) {
	for name, leases := range map[string][]int{"with contact": {1}, "cut off": {1}, "cut off, own lease first": {0, 1}} {
		cut := name != "with contact"
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const l = time.Minute
				r := newRig(t)
				a, b := r.start("a", l), r.start("b", l)
				id, secret := r.key(a)
				time.Sleep(10*time.Second + 500*time.Millisecond)
				b.set(!cut)
				for _, i := range leases {
					if err := r.leases[i].Revoke(t.Context()); err != nil {
						t.Fatal(err)
					}
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
		if why := a.cluster.Contact("a").Problem; !strings.Contains(why, "no space") || c.cluster.Contact("a").Problem != "" {
			t.Errorf("the problem of an edge that cannot report: %q", why)
		}
		r.kill(c)
		r.full = true
		c, err := r.open("c", c.disk, l, 1)
		if err != nil || c.Serving() == nil {
			t.Fatalf("an edge starts while there is no space: %v", err)
		}
		c.full.Store(false)
		r.until(func() bool { return c.Serving() == nil })
		a.set(false)
		time.Sleep(l)
		if a.Serving() == nil {
			t.Error("the edge serves without contact, as the store had no space before")
		}
		if why := a.cluster.Contact("a").Problem; !strings.Contains(why, "the line is cut") {
			t.Errorf("the problem of an edge without contact: %q", why)
		}
		a.set(true)
		r.until(func() bool { return a.cluster.Contact("a").Last.IsZero() })
		if why := a.cluster.Contact("a").Problem; strings.Contains(why, "cut") {
			t.Errorf("the problem of an edge with contact: %q", why)
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

// TestSlowClock: an edge whose clock is slow by a tenth accepts nothing after the time that an unconfirmed
// revocation returns, and another edge does not list it as lost before.
func TestSlowClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const l = 2 * time.Minute
		r := newRig(t)
		a := r.start("a", l)
		b, err := r.open("b", disk{"b", "b"}, l, 0.9)
		if err != nil {
			t.Fatal(err)
		}
		id, secret := r.key(a)
		time.Sleep(20 * time.Second)
		b.set(false)
		var u *store.Unconfirmed
		if err := a.revoke(t.Context(), id); !errors.As(err, &u) {
			t.Fatal(err)
		}
		until := u.Pending[0].Until
		for ; b.accepts(secret); time.Sleep(100 * time.Millisecond) {
			if known := a.cluster.Contact("b"); time.Now().After(until) || time.Now().After(known.Until) {
				t.Fatalf("the edge accepts a revoked key at %v, after %v: %+v", time.Now(), until, known)
			}
		}
		if early := time.Until(until); early > l/8 {
			t.Errorf("it has refused since %v before that time", early)
		}
	})
}
