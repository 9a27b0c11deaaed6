package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/rig"
)

// A key is an API key; it may have been revoked.
type key struct {
	id, secret string

	mu      sync.Mutex
	revoked time.Time // when its revocation began; zero: it is valid
}

// revokedBy tells whether the key's revocation had begun by then.
func (k *key) revokedBy(at time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.revoked.IsZero() && !at.Before(k.revoked)
}

// A keyring holds the keys that clients use. The first stays, others come and
// go.
type keyring struct {
	mu   sync.Mutex
	keys []*key
	made int
}

func (k *keyring) any(random *rand.Rand) *key {
	k.mu.Lock()
	defer k.mu.Unlock()
	return one(random, k.keys)
}

// create makes a key and hands it to clients.
func (k *keyring) create(ctx context.Context, g *rig.Gateway) (*key, error) {
	k.mu.Lock()
	k.made++
	name := fmt.Sprintf("soak-%d", k.made)
	k.mu.Unlock()
	fresh := &key{}
	err := persist(ctx, func() (err error) {
		fresh.id, fresh.secret, err = g.Key(ctx, name, "*")
		return err
	})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = append(k.keys, fresh)
	return fresh, nil
}

// take returns the oldest key but the first, and hands it out no more; nil if
// there are few.
func (k *keyring) take() *key {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.keys) < 3 {
		return nil
	}
	oldest := k.keys[1]
	k.keys = slices.Delete(k.keys, 1, 2)
	return oldest
}

// revoke revokes a key.
func (k *key) revoke(ctx context.Context, g *rig.Gateway) error {
	k.mu.Lock()
	k.revoked = time.Now()
	k.mu.Unlock()
	return persist(ctx, func() error { return g.Admin.Manage(ctx, http.MethodDelete, "/keys/"+k.id, nil, nil) })
}
