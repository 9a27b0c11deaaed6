package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// After a panic where an edge reports what is in force there, it refuses requests until it has
// joined the cluster again, and so it does while that panics.
func TestPanicOfReports(t *testing.T) {
	for doing, prefix := range map[string]string{"reporting to the cluster": "edge_reports/", "saving the electorate": "edges/"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			a, b := r.start("a", minutes), r.start("b", minutes)
			id, secret := r.key(a)
			time.Sleep(20 * time.Second)
			b.line.panics.Store(&prefix)
			_ = r.start("c", minutes) // changes the electorate
			if _, err := a.RevokeKey(t.Context(), store.DefaultAccount, id); !store.Made(err) {
				t.Fatal(err)
			}
			r.log.Expect(t, doing, 1)
			for range 60 {
				time.Sleep(time.Second)
				if b.Serving() == nil || b.accepts(secret) {
					t.Fatal("the edge accepts requests without a report")
				}
			}
			r.log.Expect(t, "joining the cluster", 1)
			b.line.panics.Store(nil)
			time.Sleep(20 * time.Second)
			if err := b.Serving(); err != nil {
				t.Error(err)
			}
			if _, err := a.CreateAccount(t.Context(), "later"); err != nil {
				t.Errorf("a later write: %v", err)
			}
		})
	}
}

// A panic where an edge asks a peer ends that question alone.
func TestPanicOfQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.start("a", minutes), r.start("b", minutes)
		a.line.panics.Store(&askPanics)
		time.Sleep(20 * time.Second)
		r.log.Expect(t, "asking a peer", 10)
		if a.Serving() != nil || b.Serving() != nil {
			t.Error("an edge refuses requests")
		}
	})
}
