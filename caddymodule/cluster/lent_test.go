package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestStartWithoutStore starts an edge from its copy while the store is down. It serves as long
// as one that has served before, and after that only with contact.
func TestStartWithoutStore(t *testing.T) {
	for name, revoked := range map[string]bool{"copy is current": false, "copy is too old": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const maxStale = 5 * time.Minute
				r := newRig(t)
				r.delay = 50 * time.Millisecond
				a, b, c := r.start("a", maxStale), r.start("b", maxStale), r.start("c", maxStale)
				id, secret := r.key(a)
				time.Sleep(10 * time.Second)
				if !c.accepts(secret) {
					t.Fatal("the edge does not know the key")
				}
				c.stop()
				if revoked {
					time.Sleep(20 * time.Second)
					if _, err := a.RevokeKey(t.Context(), store.DefaultAccount, id); err != nil {
						t.Fatal(err)
					}
				}
				down := time.Now()
				a.line.set(false)
				b.line.set(false)
				cut := newLine(r.kv)
				cut.set(false)
				c, err := r.startOver(cut, "c", "c", maxStale)
				if err != nil {
					t.Fatal(err)
				}
				if c.Serving() == nil {
					t.Error("it serves at once")
				}
				for time.Since(down) < maxStale-5*time.Second {
					time.Sleep(100 * time.Millisecond)
					if since := time.Since(down); since > 20*time.Second && c.accepts(secret) == revoked {
						t.Fatalf("after %v: it accepts the key: %v; %v", since, revoked, c.Serving())
					}
				}
				time.Sleep(10 * time.Second)
				if c.Serving() == nil {
					t.Error("it serves when no other edge does any more")
				}
				for _, e := range r.all() {
					e.line.set(true)
				}
				time.Sleep(20 * time.Second)
				if c.Serving() != nil || c.accepts(secret) == revoked {
					t.Errorf("with the store it serves: %v; accepts the key: %v", c.Serving(), c.accepts(secret))
				}
			})
		})
	}
}
