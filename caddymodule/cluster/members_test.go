package cluster_test

import (
	"errors"
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
		delete(r.edges, "b")
		c.line.set(false)
		time.Sleep(40 * time.Minute)
		if since := a.cluster.LostSince("c"); time.Since(since) < 39*time.Minute || time.Since(since) > 40*time.Minute {
			t.Errorf("c is lost for %v", time.Since(since))
		}
		c.line.set(true)
		time.Sleep(18 * time.Minute)
		if names := a.EdgeNames(); !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("after 58 minutes, the edges are %v", names)
		}
		c.line.set(false)
		time.Sleep(5 * time.Minute)
		if names := a.EdgeNames(); !slices.Equal(names, []string{"a", "c"}) {
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
		if err := a.cluster.Remove(t.Context(), "nosuch"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("an unknown edge: %v", err)
		}
		if err := a.cluster.Remove(t.Context(), "b"); !errors.Is(err, store.ErrInUse) {
			t.Errorf("a running edge: %v", err)
		}
		b.line.set(false)
		for a.cluster.LostSince("b").IsZero() {
			time.Sleep(time.Second)
		}
		lost := time.Now()
		for {
			err := a.cluster.Remove(t.Context(), "b")
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
		delete(r.edges, "a")
		time.Sleep(11 * time.Minute)
		if got := b.line.compacted(); len(got) == 0 || got[0] < written[2] {
			t.Errorf("the next leader has compacted to %v, written at %v", got, written)
		}
	})
}
