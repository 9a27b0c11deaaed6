package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// names returns the names of the edges.
func (e *edge) names() string {
	names := ""
	for _, other := range e.Edges() {
		names += other.Name
	}
	return names
}

// TestForgetLostEdges has the leader remove an edge after an hour, and no edge that comes back
// before that.
func TestForgetLostEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.start("a", time.Minute)
		time.Sleep(time.Second)
		b, c := r.start("b", time.Minute), r.start("c", time.Minute)
		time.Sleep(5 * time.Second)
		r.kill(b)
		c.set(false)
		time.Sleep(40 * time.Minute)
		c.set(true)
		time.Sleep(18 * time.Minute)
		if a.names() != "abc" {
			t.Errorf("after 58 minutes, the edges are %v", a.names())
		}
		c.set(false)
		time.Sleep(5 * time.Minute)
		if a.names() != "ac" {
			t.Errorf("after 63 minutes, the edges are %v", a.names())
		}
	})
}

// TestContact is what edges know of each other when one has lost the store, and the leader, which has the
// store.
func TestContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const l = time.Minute
		r := newRig(t)
		a := r.start("a", l)
		time.Sleep(time.Second)
		b := r.start("b", l)
		for range 10 {
			time.Sleep(time.Second)
			for _, e := range []*edge{a, b} {
				for _, name := range []string{"a", "b"} {
					k := e.cluster.Contact(name)
					left := time.Until(k.Until)
					if k.Unknown || !k.Last.IsZero() || left < l-5*time.Second || left > l*9/8 || e.cluster.LeaderName() != "a" {
						t.Fatalf("of %s, %s knows %+v; leader %q", name, e.name, k, e.cluster.LeaderName())
					}
				}
			}
		}
		a.set(false)
		cut := time.Now()
		time.Sleep(30 * time.Second)
		own, other := a.cluster.Contact("a"), b.cluster.Contact("a")
		for i, k := range []store.Contact{own, other} {
			longest := l + time.Duration(i)*l/8 // by a slow clock of another edge
			if k.Unknown || cut.Sub(k.Last) > 4*time.Second || k.Until.Sub(k.Last) != longest {
				t.Errorf("of an edge that serves without the store: %+v", k)
			}
		}
		if other.Until.Before(own.Until) {
			t.Error("it serves for longer than another one knows")
		}
		if k := a.cluster.Contact("b"); !k.Unknown {
			t.Errorf("without the store, an edge knows %+v", k)
		}
		if a.cluster.Leader() || !b.cluster.Leader() || a.cluster.LeaderName() != "" || b.cluster.LeaderName() != "b" {
			t.Errorf("the leaders are %q and %q", a.cluster.LeaderName(), b.cluster.LeaderName())
		}
		time.Sleep(time.Minute)
		for _, e := range []*edge{a, b} {
			if k := e.cluster.Contact("a"); k.Unknown || time.Since(k.Until) < 0 || cut.Sub(k.Last) > 4*time.Second {
				t.Errorf("of an edge that refuses, %s knows %+v", e.name, k)
			}
		}
	})
}

// TestRemoveEdge removes an edge whose report has ended, and one that has stopped according to an
// operator.
func TestRemoveEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const l = 5 * time.Minute
		a, b := r.start("a", l), r.start("b", l)
		time.Sleep(6 * time.Second)
		remove := func(name string, stopped bool, kind error, texts ...string) {
			t.Helper()
			err := a.cluster.Remove(t.Context(), name, stopped)
			if !errors.Is(err, kind) {
				t.Errorf("removing %s: %v", name, err)
			}
			for _, text := range texts {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("removing %s: %v does not say %q", name, err, text)
				}
			}
		}
		remove("nosuch", false, store.ErrNotFound)
		remove("nosuch", true, store.ErrNotFound)
		remove("b", false, store.ErrInUse, "is running: stop its program", "remove b --stopped", "2000-01-01T00:06:")
		remove("a", true, store.ErrInUse, "is running")
		b.set(false)
		time.Sleep(20 * time.Second)
		remove("b", false, store.ErrInUse, "has lost the store. It accepts nothing after 2000-01-01T00:05:4",
			"removed after 2000-01-01T00:06:2", "remove b --stopped")
		time.Sleep(l + l/4)
		remove("b", false, nil)
		b.set(true)
		time.Sleep(10 * time.Second)
		if e, ok := a.FindEdge("b"); !ok || e.Report == nil || b.Serving() != nil {
			t.Errorf("b has not come back: %+v, %v", e, b.Serving())
		}
		id, _ := r.key(a)
		r.kill(b)
		if err := a.revoke(t.Context(), id); !errors.Is(err, store.ErrUnconfirmed) {
			t.Errorf("with a lost edge, a revocation returns %v", err)
		}
		remove("b", true, nil)
		if err := a.revoke(t.Context(), id); err != nil || a.names() != "a" {
			t.Errorf("with the edges %s, a revocation returns %v", a.names(), err)
		}
	})
}

// TestDrainingSurvives keeps an edge draining, and serving, while its process lives.
func TestDrainingSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.start("a", 0), r.start("b", 0)
		if _, err := a.ChangeEdge(t.Context(), "b", func(e *store.Edge) { e.Draining = true }); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if time.Sleep(100 * time.Millisecond); b.Serving() != nil {
				t.Fatal("it refuses requests")
			}
		}
		b.set(false)
		time.Sleep(time.Minute)
		b.set(true)
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
			written = append(written, b.Revision())
			time.Sleep(10 * time.Minute)
			if got := a.compacted(); len(got) != i+1 || got[i] >= written[i] || i > 0 && got[i] < written[i-1] {
				t.Fatalf("compacted to %v, written at %v", got, written)
			}
		}
		if got := b.compacted(); len(got) > 0 {
			t.Errorf("b does not lead, and compacts to %v", got)
		}
		r.kill(a)
		time.Sleep(11 * time.Minute)
		if got := b.compacted(); len(got) == 0 || got[0] < written[2] {
			t.Errorf("the next leader has compacted to %v, written at %v", got, written)
		}
	})
}
