package cluster_test

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestLostEdge cuts an edge off from the store. It refuses, and ends what runs, at L. A revocation is
// unconfirmed until its lease has ended, and the error says until when it may accept.
func TestLostEdge(t *testing.T) {
	for _, l := range []time.Duration{0, 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			a, b, c := r.start("a", l), r.start("b", l), r.start("c", l)
			l = max(l, 10*time.Second)
			id, secret := r.key(a)
			time.Sleep(time.Minute + 500*time.Millisecond)
			key, _ := c.FindKey(secret)
			began, ended := time.Now(), make(chan time.Duration, 2)
			key.Begin(netip.Addr{}, func(store.Refusal) { ended <- time.Since(began) })
			c.set(false)
			err := a.revoke(t.Context(), id)
			var u *store.Unconfirmed
			if !errors.As(err, &u) || len(u.Pending) != 1 || u.Pending[0].Edge != "c" || time.Since(began) > 6*time.Second {
				t.Fatalf("with an edge cut off, a revocation returns %v after %v", err, time.Since(began))
			}
			if until := u.Pending[0].Until.Sub(began); until > l*9/8 || until < l*9/8-6*time.Second {
				t.Errorf("the edge may accept for %v", until)
			}
			if b.accepts(secret) || !c.accepts(secret) {
				t.Error("b has contact, c has none")
			}
			r.until(func() bool { return c.Serving() != nil })
			if early := time.Until(u.Pending[0].Until); early < -20*time.Millisecond || early > l/8 {
				t.Errorf("it refuses after %v, and has said %v", time.Since(began), u.Pending[0].Until.Sub(began))
			}
			time.Sleep(20 * time.Millisecond)
			if len(ended) != 1 {
				t.Error("the request goes on")
			} else if took := <-ended; took > l {
				t.Errorf("the request has ended after %v", took)
			}
			for err != nil {
				err = a.revoke(t.Context(), id)
			}
			if took := time.Since(began); took > l+max(l/4, 5*time.Second)+time.Second {
				t.Errorf("the revocation was confirmed after %v", took)
			}
			time.Sleep(time.Hour - time.Since(began)%time.Hour)
			c.set(true)
			// It watches the store again after 1 s.
			if took := r.until(func() bool { return c.Serving() == nil }); c.accepts(secret) || took > 3*time.Second {
				t.Errorf("after %v the edge serves again; with the revoked key: %v", took, c.accepts(secret))
			}
			if len(ended) > 0 {
				t.Error("the request ends twice")
			}
		})
	}
}

// TestStoreDown has the store away from all edges. They serve without a gap if it comes back before L,
// and otherwise refuse at L, and serve again when it comes back.
func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const l = time.Minute
		r := newRig(t)
		for _, name := range []string{"a", "b", "c"} {
			r.start(name, l)
		}
		outage := func(d time.Duration, each func(e *edge, down time.Duration)) {
			began := time.Now()
			for end := began.Add(d + 30*time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				for i, e := range r.all() {
					e.set(time.Since(began) > d+time.Duration(i)*200*time.Millisecond)
					each(e, time.Since(began))
				}
			}
		}
		for i := range 20 {
			outage(30*time.Second+time.Duration(i)*time.Second, func(e *edge, down time.Duration) {
				if err := e.Serving(); err != nil {
					t.Fatalf("%v after the beginning of outage %d, %s refuses: %v", down, i, e.name, err)
				}
			})
		}
		outage(2*l, func(e *edge, down time.Duration) {
			must, mustNot := down < l-4*time.Second || down > 2*l+5*time.Second, down > l && down < 2*l
			if serves := e.Serving() == nil; must && !serves || mustNot && serves {
				t.Fatalf("%v after the beginning of an outage of %v, %s serves: %v", down, 2*l, e.name, serves)
			}
		})
	})
}

// TestCallsWithoutStore: what needs the store fails after 10 s, and does not wait for it.
func TestCallsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start("a", 5*time.Minute)
		a.set(false)
		for what, call := range map[string]func() error{
			"removing an edge": func() error { return a.cluster.Remove(t.Context(), "b", true) },
			"a backup":         func() error { return a.Backup(t.Context(), io.Discard) },
			"a write": func() error {
				_, _, err := a.key(t.Context())
				return err
			},
			"usage": func() error {
				each := func(store.UsageRow) error { return nil }
				return a.EachUsage(t.Context(), store.DefaultAccount, "", "2026-01-01", "2026-01-02", each)
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

// TestSuspension suspends an edge, with clocks that stand still or go on. When it goes on, it refuses
// until a contact that it has sent since.
func TestSuspension(t *testing.T) {
	for name, tt := range map[string]struct {
		stand int // so many of the monotonic and the boot clock stand still
		d     time.Duration
	}{
		"all clocks go on":            {0, time.Hour},
		"the monotonic clock stands":  {1, time.Hour},
		"only the wall clock goes on": {2, time.Hour},
		"shortly":                     {0, 20 * time.Second},
	} {
		for _, sent := range []bool{false, true} { // before the suspension, a contact is answered after it
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					a, b := r.start("a", time.Minute), r.start("b", time.Minute)
					id, secret := r.key(a)
					time.Sleep(20 * time.Second)
					var ended atomic.Value // the reason
					key, _ := b.FindKey(secret)
					key.Begin(netip.Addr{}, func(why store.Refusal) { ended.Store(why) })
					if sent {
						suspend := b.suspend
						b.kept.Store(&suspend)
						r.until(b.suspended)
						b.kept.Store(nil)
					}
					b.suspend()
					time.Sleep(tt.d)
					err := a.revoke(t.Context(), id)
					if (err == nil) != (tt.d > 75*time.Second) {
						t.Errorf("after %v it is confirmed: %v", tt.d, err)
					}
					b.set(false)
					b.resume([]*time.Duration{&b.off.Monotonic, &b.off.Boot}[:tt.stand]...)
					for range 200 {
						synctest.Wait()
						if b.Serving() == nil {
							t.Fatal("it serves without a contact")
						}
						time.Sleep(10 * time.Millisecond)
					}
					if why := ended.Load(); tt.d > time.Minute && why == nil || tt.d < time.Minute && why == store.RefusedStore {
						t.Errorf("the request has ended with %v", why)
					}
					b.set(true)
					if took := r.until(func() bool { return b.Serving() == nil }); took > 4*time.Second || b.accepts(secret) {
						t.Errorf("it serves after %v; with the revoked key: %v", took, b.accepts(secret))
					}
				})
			})
		}
	}
}

// TestStuckWatch: an edge gets no changes while its calls are answered. Its lease ends, and it is not in
// the cluster until it gets them.
func TestStuckWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.start("a", time.Minute), r.start("b", time.Minute)
		id, secret := r.key(a)
		time.Sleep(20 * time.Second)
		stuck := make(chan struct{})
		began := time.Now()
		go b.CutOff(errLine, func() { <-stuck })
		for a.revoke(t.Context(), id) != nil {
		}
		if b.accepts(secret) || time.Since(began) < 50*time.Second || time.Since(began) > 80*time.Second {
			t.Errorf("confirmed after %v; accepted: %v", time.Since(began), b.accepts(secret))
		}
		if at := a.cluster.Contact("b"); time.Since(at.Until) < 0 {
			t.Errorf("without a report: %+v", at)
		}
		close(stuck)
		if took := r.until(func() bool { return b.Serving() == nil }); took > 6*time.Second || b.accepts(secret) {
			t.Errorf("it serves after %v; with the revoked key: %v", took, b.accepts(secret))
		}
	})
}

// TestLateReport has a report arrive after its process has left, was replaced, or has joined again.
func TestLateReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.start("a", time.Minute), r.start("b", time.Minute)
		late := func(after string, report *store.Txn) {
			t.Helper()
			if result, err := r.kv.Txn(t.Context(), *report); err != nil || result.Succeeded {
				t.Errorf("a report arrives after its process has %s: %+v, %v", after, result, err)
			}
		}
		report := b.reported.Load()
		r.leave(b)
		late("left", report)
		b = r.start("b", time.Minute)
		late("been replaced", report)
		report = b.reported.Load()
		if err := a.cluster.Remove(t.Context(), "b", true); err != nil {
			t.Fatal(err)
		}
		late("been removed", report)
		time.Sleep(6 * time.Second) // until it has noticed that
		if e, _ := a.FindEdge("b"); e.Report == nil || b.Serving() != nil {
			t.Fatalf("it has not joined again: %+v", e)
		}
		late("joined again", report)
	})
}

// TestTakenName starts a process with the name of an edge that has a report.
func TestTakenName(t *testing.T) {
	const l = time.Minute
	for name, tt := range map[string]struct {
		name  string
		disk  disk
		ready time.Duration // after the loss of the first one; 0: it does not start
		error string
	}{
		"the same file again":              {"b", disk{"b", "b"}, time.Second, ""},
		"the same file under another name": {"b2", disk{"b", "b"}, time.Second, ""},
		"another machine": {
			"b",
			disk{"x", "x"},
			76 * time.Second,
			"another gateway called b may accept requests: if it does not run, this one takes its place by 2000-01-01T00:0",
		},
		"a copied directory": {
			"b",
			disk{"b", "x"},
			76 * time.Second,
			"the last process of b, or one with a copy of its data directory, may accept requests",
		},
		"a copied directory and another name": {"b2", disk{"b", "x"}, 0, "another gateway of the cluster, b, " +
			"uses a copy of this data directory, or did so less than 1m15s ago: delete model_gateway/edge.db here"},
		"a machine without boot ids": {"b", disk{"b", ""}, 76 * time.Second, "the last process of b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				a, b := r.start("a", l), r.start("b", l)
				if tt.disk.boot == "" {
					r.leave(b)
					b, _ = r.open("b", tt.disk, l, 1)
				}
				id, secret := r.key(a)
				time.Sleep(20 * time.Second)
				b.set(false) // it goes on
				if tt.ready == time.Second {
					r.kill(b)
				}
				lost := time.Now()
				other, err := r.open(tt.name, tt.disk, l, 1)
				if tt.ready == 0 {
					if !errors.Is(err, store.ErrExists) || !strings.Contains(err.Error(), tt.error) {
						t.Errorf("it fails with %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if tt.ready > time.Second {
					time.Sleep(3 * time.Second)
					why := other.cluster.Contact(tt.name).Problem
					if n := strings.Count(r.log.String(), tt.error); n != 1 || !strings.Contains(why, tt.error) {
						t.Errorf("its problem is %q, and is logged %d times", why, n)
					}
				}
				for a.revoke(t.Context(), id) != nil {
				}
				if b.accepts(secret) && !b.gone() {
					t.Error("the first one accepts a revoked key")
				}
				r.until(func() bool { return other.Serving() == nil })
				took := time.Since(lost)
				if took > tt.ready || took < tt.ready-10*time.Second || !strings.Contains(r.log.String(), tt.error) {
					t.Errorf("it serves after %v; the log: %s", took, r.log)
				}
				if edges := a.Edges(); len(edges) != 2 || edges[1].Name != tt.name || edges[1].Instance != tt.disk.instance {
					t.Errorf("there are %+v", edges)
				}
				if tt.ready > time.Second { // the first one comes back, and must not take the name
					b.set(true)
					time.Sleep(2 * l)
					if other.Serving() != nil || b.Serving() == nil || !strings.Contains(r.log.String(), " runs: give each its own") {
						t.Errorf("the second one serves: %v, the first one: %v", other.Serving(), b.Serving())
					}
					id, _ := r.key(b)
					other.set(false)
					if err := b.revoke(t.Context(), id); !errors.Is(err, store.ErrUnconfirmed) {
						t.Errorf("without an answer of the process with the name, a revocation returns %v", err)
					}
					other.set(true)
					r.leave(b) // without what belongs to the other
					if e, _ := a.FindEdge("b"); e.Report == nil || other.Serving() != nil {
						t.Errorf("after the first one has left: %+v", e)
					}
				}
			})
		})
	}
}
