package store

import (
	"sync"
	"sync/atomic"

	"github.com/postern-dev/postern/caddymodule/scope"
)

// LiveKey is a key as it is now: its methods follow the store. One
// key has one LiveKey, also across changes of its record, so a request may
// hold it for as long as it runs.
type LiveKey struct {
	record atomic.Pointer[keyRecord]

	mu      sync.Mutex
	revoked bool // the callbacks have been or are being called
	calls   map[*func()]struct{}
}

func newLiveKey(r *keyRecord) *LiveKey {
	k := &LiveKey{revoked: r.RevokedAt != nil, calls: make(map[*func()]struct{})}
	k.record.Store(r)
	return k
}

// Key returns the record.
func (k *LiveKey) Key() Key {
	r := k.record.Load()
	key := r.Key
	key.LastUsedAt = r.use.last()
	return key
}

// ID returns the key's id.
func (k *LiveKey) ID() string { return k.record.Load().ID }

// Account returns the id of the account that the key belongs to.
func (k *LiveKey) Account() string { return k.record.Load().Account }

// Scope returns what the key may be used for.
func (k *LiveKey) Scope() scope.Scope { return k.record.Load().scope }

// Allows reports whether the key may be used for a deployment's public name.
func (k *LiveKey) Allows(name string) bool { return k.record.Load().scope.Allows(name) }

// Revoked reports whether the key has been revoked.
func (k *LiveKey) Revoked() bool { return k.record.Load().RevokedAt != nil }

// OnRevoke has f called once when the key is revoked, before RevokeKey returns, or
// at once if it is revoked already. f must return soon and not write to the store.
// stop takes f back, and does not wait for an f that is running.
func (k *LiveKey) OnRevoke(f func()) (stop func()) {
	k.mu.Lock()
	if k.revoked {
		k.mu.Unlock()
		f()
		return func() {}
	}
	call := &f
	k.calls[call] = struct{}{}
	k.mu.Unlock()
	return func() {
		k.mu.Lock()
		delete(k.calls, call)
		k.mu.Unlock()
	}
}

// revoke makes the calls, the first time. The record says so already, so that
// a request that adds a call later finds the key revoked.
func (k *LiveKey) revoke() {
	k.mu.Lock()
	calls := k.calls
	k.revoked, k.calls = true, nil
	k.mu.Unlock()
	for call := range calls {
		(*call)()
	}
}
