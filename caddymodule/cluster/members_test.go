package cluster_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestForgetLostEdges has the leader remove an edge after an hour, and no edge that comes back
// before that.
func TestForgetLostEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start("a", 0)
		time.Sleep(time.Second)
		b, c := r.start("b", 0), r.start("c", 0)
		time.Sleep(5 * time.Second)
		b.stop()
		r.forget(b)
		c.line.set(false)
		time.Sleep(40 * time.Minute)
		if since := a.cluster.LostSince("c"); time.Since(since) < 39*time.Minute || time.Since(since) > 40*time.Minute {
			t.Errorf("c is lost for %v", time.Since(since))
		}
		c.line.set(true)
		time.Sleep(18 * time.Minute)
		if names := a.EdgeInstances(); !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("after 58 minutes, the edges are %v", names)
		}
		c.line.set(false)
		time.Sleep(5 * time.Minute)
		if names := a.EdgeInstances(); !slices.Equal(names, []string{"a", "c"}) {
			t.Errorf("after 63 minutes, the edges are %v", names)
		}
		if since := a.cluster.LostSince("a"); !since.IsZero() {
			t.Errorf("a is lost since %v", since)
		}
		if c.cluster.LostSince("c").IsZero() || c.cluster.LeaderName() != "a" || a.cluster.LeaderName() != "a" {
			t.Errorf("c is lost since %v, the leaders are %q and %q", c.cluster.LostSince("c"), c.cluster.LeaderName(), a.cluster.LeaderName())
		}
	})
}

// TestRemoveEdge removes a lost edge once it refuses all requests, and no other.
func TestRemoveEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const maxStale = 5 * time.Minute
		a, b := r.start("a", maxStale), r.start("b", maxStale)
		time.Sleep(5 * time.Second)
		if err := a.cluster.Remove(t.Context(), "nosuch", false); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("an unknown edge: %v", err)
		}
		if err := a.cluster.Remove(t.Context(), "b", false); !errors.Is(err, store.ErrInUse) {
			t.Errorf("a running edge: %v", err)
		}
		b.line.set(false)
		for a.cluster.LostSince("b").IsZero() {
			time.Sleep(time.Second)
		}
		lost := time.Now()
		for {
			err := a.cluster.Remove(t.Context(), "b", false)
			if err == nil {
				break
			}
			if !errors.Is(err, store.ErrInUse) || time.Since(lost) > maxStale+time.Minute {
				t.Fatalf("%v after %v", err, time.Since(lost))
			}
			time.Sleep(time.Second)
		}
		if time.Since(lost) < maxStale-time.Second || b.Serving() == nil {
			t.Errorf("b is removed after %v, and serves: %v", time.Since(lost), b.Serving() == nil)
		}
		b.line.set(true)
		time.Sleep(10 * time.Second)
		if e, ok := a.FindEdge("b"); !ok || e.Report == nil || b.Serving() != nil {
			t.Errorf("b has not come back: %+v, %v", e, b.Serving())
		}
	})
}

// TestDrainingSurvives keeps an edge draining while its process lives.
func TestDrainingSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.start("a", 0), r.start("b", 0)
		if _, err := a.ChangeEdge(t.Context(), "b", func(e *store.Edge) { e.Draining = true }); err != nil {
			t.Fatal(err)
		}
		b.line.set(false)
		time.Sleep(time.Minute)
		b.line.set(true)
		time.Sleep(10 * time.Second)
		if !b.cluster.Draining() || a.cluster.Draining() || b.Serving() != nil {
			t.Errorf("b drains: %v, a: %v", b.cluster.Draining(), a.cluster.Draining())
		}
	})
}

// TestCompaction has the leader drop what is older than 10 minutes, and the next one when that
// is gone.
func TestCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start("a", 0)
		time.Sleep(time.Second)
		b := r.start("b", 0)
		var written []int64 // at minutes 5, 15, 25
		time.Sleep(5 * time.Minute)
		for i := range 3 {
			r.key(b)
			revision, err := b.CatchUp(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			written = append(written, revision)
			time.Sleep(10 * time.Minute)
			if got := a.line.compacted(); len(got) != i+1 || got[i] >= written[i] || i > 0 && got[i] < written[i-1] {
				t.Fatalf("compacted to %v, written at %v", got, written)
			}
		}
		if got := b.line.compacted(); len(got) > 0 {
			t.Errorf("b does not lead, and compacts to %v", got)
		}
		a.stop()
		r.forget(a)
		time.Sleep(11 * time.Minute)
		if got := b.line.compacted(); len(got) == 0 || got[0] < written[2] {
			t.Errorf("the next leader has compacted to %v, written at %v", got, written)
		}
	})
}

// TestCutRequests ends running requests of an edge that has no contact for as long as it may go
// on, whether it alone has lost the store or all have.
func TestCutRequests(t *testing.T) {
	const never = 10 * time.Minute
	for _, tt := range []struct {
		name     string
		maxStale time.Duration
		all      bool          // are without the store, otherwise one
		mended   time.Duration // after so long; 0: never
		cut      time.Duration
	}{
		{"one", 5 * time.Minute, false, 0, 5 * time.Minute},
		{"all", 5 * time.Minute, true, 0, 5 * time.Minute},
		{"one, not for long", 5 * time.Minute, false, 4 * time.Minute, never},
		{"one, deny", 0, false, 0, 10 * time.Second},
		{"all, deny", 0, true, 0, 10 * time.Second},
		{"less than 10 s", time.Second, true, 0, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				edges := []*edge{r.start("a", tt.maxStale), r.start("b", tt.maxStale), r.start("c", tt.maxStale)}
				time.Sleep(10 * time.Second)
				_, secret := r.key(edges[0])
				if !tt.all {
					edges = edges[:1]
				}
				for _, e := range edges {
					e.line.set(false)
				}
				key, _ := edges[0].FindKey(secret)
				lost, cut := time.Now(), make(chan time.Time, 2)
				key.Begin(netip.Addr{}, func(store.Refusal) { cut <- time.Now() })
				if tt.mended > 0 {
					time.AfterFunc(tt.mended, func() { edges[0].line.set(true) })
				}
				time.Sleep(never)
				took := never
				if len(cut) > 0 {
					took = (<-cut).Sub(lost)
				}
				if took < tt.cut-5*time.Second || took > tt.cut+4*time.Second {
					t.Errorf("cut after %v, not %v", took, tt.cut)
				}
				if key.Revoked() || (edges[0].Serving() == nil) != (tt.mended > 0) {
					t.Errorf("revoked: %v, serving: %v", key.Revoked(), edges[0].Serving())
				}
				// What runs when it is lost again is ended again.
				edges[0].line.set(true)
				time.Sleep(10 * time.Second)
				key.Begin(netip.Addr{}, func(store.Refusal) { cut <- time.Now() })
				edges[0].line.set(false)
				time.Sleep(never)
				want := 1
				if tt.mended > 0 {
					want = 2 // with the one above
				}
				if len(cut) != want {
					t.Errorf("%d requests were cut, not %d", len(cut), want)
				}
			})
		})
	}
}
