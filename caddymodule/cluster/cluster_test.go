package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRevokedEverywhere has each edge revoke keys that no edge may accept afterwards.
func TestRevokedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		for _, name := range []string{"a", "b", "c"} {
			if e := r.start(name, time.Minute); e.Serving() != nil {
				t.Errorf("%s does not serve after its start: %v", name, e.Serving())
			}
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("three starts took %v", took)
		}
		for range 20 {
			for _, e := range r.all() {
				id, secret := r.key(e)
				for _, other := range r.all() {
					if _, err := other.CatchUp(t.Context()); err != nil || !other.accepts(secret) {
						t.Fatalf("%s does not accept a new key: %v", other.name, err)
					}
				}
				if err := e.revoke(t.Context(), id); err != nil {
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
