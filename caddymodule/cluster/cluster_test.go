package cluster_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestRevokedEverywhere has each edge revoke keys that no edge may accept afterwards.
func TestRevokedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, name := range []string{"a", "b", "c"} {
			r.start(name, 0)
		}
		time.Sleep(5 * time.Second)
		for range 20 {
			for _, e := range r.all() {
				id, secret := r.key(e)
				for _, other := range r.all() {
					if _, err := other.CatchUp(t.Context()); err != nil || !other.accepts(secret) {
						t.Fatalf("%s does not accept a new key: %v", other.name, err)
					}
				}
				if _, err := e.RevokeKey(t.Context(), store.DefaultAccount, id); err != nil {
					t.Fatal(err)
				}
				for _, other := range r.all() {
					if other.accepts(secret) {
						t.Fatalf("%s accepts a key that %s has revoked", other.name, e.name)
					}
				}
			}
		}
	})
}

// TestLostEdge cuts an edge off from the store. It refuses after 10 s; a revocation is
// unconfirmed until it must have.
func TestLostEdge(t *testing.T) {
	for name, maxStale := range map[string]time.Duration{"deny": 0, "5m": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				a, b, c := r.start("a", maxStale), r.start("b", maxStale), r.start("c", maxStale)
				time.Sleep(10 * time.Second)
				id, secret := r.key(a)
				if _, err := c.CatchUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				cut := time.Now()
				c.line.set(false)
				_, err := a.RevokeKey(t.Context(), store.DefaultAccount, id)
				var u *store.Unconfirmed
				if !errors.As(err, &u) || len(u.Pending) != 1 || u.Pending[0].Edge != "c" || time.Since(cut) > 6*time.Second {
					t.Fatalf("with an edge cut off, a revocation returns %v after %v", err, time.Since(cut))
				}
				if b.accepts(secret) || !c.accepts(secret) {
					t.Error("b has contact, c has none")
				}
				until := u.Pending[0].Until
				for c.Serving() == nil {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(cut); took < 7*time.Second || took > 11*time.Second || time.Now().After(until) {
					t.Errorf("the edge has refused after %v; announced for %v", took, until.Sub(cut))
				}
				for err != nil {
					_, err = a.RevokeKey(t.Context(), store.DefaultAccount, id)
				}
				if took := time.Since(cut); took > 17*time.Second {
					t.Errorf("the revocation was confirmed after %v", took)
				}
				c.line.set(true)
				mended := time.Now()
				for c.Serving() != nil {
					time.Sleep(50 * time.Millisecond)
				}
				// It watches the store again after 1 s, and reports 3 s after its last answer to a
				// peer.
				if c.accepts(secret) || time.Since(mended) > 7*time.Second {
					t.Errorf("after %v the edge serves again; with the revoked key: %v", time.Since(mended), c.accepts(secret))
				}
			})
		})
	}
}

// TestStoreDown has the store away from all edges: they serve for OnStoreLoss, and then no more.
func TestStoreDown(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			for _, name := range []string{"a", "b", "c"}[:n] {
				r.start(name, 5*time.Minute)
			}
			time.Sleep(20 * time.Second)
			serving := func() (all, none bool) {
				all, none = true, true
				for _, e := range r.all() {
					all, none = all && e.Serving() == nil, none && e.Serving() != nil
				}
				return all, none
			}
			down := time.Now()
			for _, e := range r.all() {
				time.Sleep(200 * time.Millisecond)
				e.line.set(false)
			}
			for time.Since(down) < 5*time.Minute-5*time.Second {
				if all, _ := serving(); !all {
					t.Fatalf("%d edges: one refuses after %v", n, time.Since(down))
				}
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(6 * time.Second)
			if _, none := serving(); !none {
				t.Errorf("%d edges: one serves after %v", n, time.Since(down))
			}
			for _, e := range r.all() {
				e.line.set(true)
			}
			time.Sleep(10 * time.Second)
			if all, _ := serving(); !all {
				t.Errorf("%d edges: one does not serve again", n)
			}
		})
	}
}

// TestStoreBack ends outages at different moments: while one edge has contact to the store again
// and another does not yet, both serve.
func TestStoreBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, name := range []string{"a", "b", "c"} {
			r.start(name, 5*time.Minute)
		}
		for i := range 30 {
			time.Sleep(10 * time.Second)
			for _, e := range r.all() {
				e.line.set(false)
				time.Sleep(200 * time.Millisecond)
			}
			time.Sleep(9*time.Second + time.Duration(i)*70*time.Millisecond) // the leases of 15 s last longer
			for _, e := range r.all() {
				e.line.set(true)
			}
			for back := time.Now(); time.Since(back) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
				for _, e := range r.all() {
					if err := e.Serving(); err != nil {
						t.Fatalf("outage %d: %v after its end, %s says: %v", i, time.Since(back), e.name, err)
					}
				}
			}
		}
	})
}

// TestCallsWithoutStore: what needs the store fails after 10 s, and does not wait for it.
func TestCallsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start("a", 5*time.Minute)
		time.Sleep(5 * time.Second)
		a.line.set(false)
		for what, call := range map[string]func() error{
			"a write": func() error {
				_, _, err := a.CreateKey(t.Context(), store.Key{Account: store.DefaultAccount, Name: rand.Text(), Scope: "*"})
				return err
			},
			"usage": func() error {
				return a.EachUsage(t.Context(), store.DefaultAccount, "2026-01-01", "2026-01-02", nil, func(store.UsageRow) error { return nil })
			},
			"the edge's own usage": func() error {
				_, err := a.OwnUsage(t.Context(), store.UsageRow{Account: store.DefaultAccount, Day: "2026-01-01", Key: "k"})
				return err
			},
		} {
			began := time.Now()
			if err := call(); !errors.Is(err, store.ErrUnavailable) || time.Since(began) != 10*time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		}
		if err := a.Serving(); err != nil {
			t.Errorf("requests: %v", err)
		}
	})
}

// TestNames refuses a second edge of one name while the first has its report.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start("a", 0)
		if _, err := r.tryStart("a", "other", 0); !errors.Is(err, store.ErrExists) {
			t.Errorf("a second edge of the name joins: %v", err)
		}
		a.stop()
		r.start("a", 0) // the same data directory again
		if edges := r.edges["a"].Edges(); len(edges) != 1 || edges[0].Report == nil {
			t.Errorf("there are %+v", edges)
		}
		if err := r.edges["a"].cluster.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = r.edges["a"].Close()
		r.forget(a)
		if b := r.start("b", 0); len(b.Edges()) != 1 || !b.cluster.Leader() {
			t.Errorf("after one has left, there are %+v", b.Edges())
		}
	})
}
