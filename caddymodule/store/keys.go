package store

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/postern-dev/postern/caddymodule/scope"
)

type keyRecord struct {
	header
	Key
	Hash digest `json:"hash"`

	scope scope.Scope // parsed
	live  *LiveKey
}

func (r *keyRecord) place() key    { return key{r.Account, r.ID} }
func (r *keyRecord) label() string { return r.Name }

func (r *keyRecord) state() string {
	if r.RevokedAt != nil {
		return KeyRevoked
	}
	return KeyValid
}

func (r *keyRecord) check() (err error) {
	if r.scope, err = scope.Parse(r.Scope); err != nil {
		return err
	}
	return checkHash(r.Hash)
}

var keyKind = &kind[keyRecord, *keyRecord]{
	dir: "keys/", prefix: prefixKey, seenAt: "last_used/", secret: prefixSecret, what: KindKey, remains: true,
	in:    func(r *records) *collection[*keyRecord] { return &r.keys },
	index: func(r *keyRecord) digest { return r.Hash },
	amend: func(_ *records, r *keyRecord, c *Change) { c.Removed = c.Removed || r.RevokedAt != nil },
	adopt: func(d *draft, old, next *keyRecord) {
		if old == nil {
			next.live = newLiveKey(next)
			return
		}
		next.live = old.live
		d.updates = append(d.updates, next)
	},
	// A removed key is revoked for requests that hold its LiveKey.
	removed: func(d *draft, old *keyRecord) {
		revoked := *old
		if revoked.RevokedAt == nil {
			revoked.RevokedAt = &d.now
		}
		d.updates = append(d.updates, &revoked)
	},
}

// FindKey returns the key with this secret, even if it is revoked. It takes no lock and
// allocates nothing. It looks up a SHA-256 hash, so its timing reveals nothing useful
// about secrets.
func (s *Store) FindKey(secret string) (*LiveKey, bool) {
	r, ok := keyKind.bySecret(s.view.Load(), secret)
	return r.live, ok
}

// Key returns a key of an account, even if it is revoked.
func (s *Store) Key(account, id string) (Key, bool) {
	r, ok := keyKind.at(s.view.Load(), account, id)
	if !ok {
		return Key{}, false
	}
	return r.live.Key(), true
}

// Keys returns the keys of an account, including revoked ones, in order of creation.
func (s *Store) Keys(account string) []Key {
	return list(keyKind.of(s.view.Load(), account), func(r *keyRecord) (Key, bool) { return r.live.Key(), true })
}

// KeyCount counts the valid and the revoked keys of an account.
func (s *Store) KeyCount(account string) (valid, revoked int) {
	for r := range keyKind.of(s.view.Load(), account) {
		if r.RevokedAt == nil {
			valid++
		} else {
			revoked++
		}
	}
	return valid, revoked
}

// CreateKey creates a key and returns it with its secret, which is not shown again.
// Names of keys need not be unique.
func (s *Store) CreateKey(ctx context.Context, account, name, scopeText string) (Key, string, error) {
	if err := checkLabel("key", name); err != nil {
		return Key{}, "", err
	}
	parsed, err := scope.Parse(scopeText)
	if err != nil {
		return Key{}, "", Errorf(ErrInvalid, "%v", err)
	}
	secret, hash := newSecret(prefixSecret)
	r := &keyRecord{Hash: hash, Key: Key{
		ID: newID(prefixKey, s.now()), Account: account, Name: name, Scope: parsed.String(), CreatedAt: s.time(), CreatedBy: actor(ctx),
	}}
	k, err := update(ctx, s, "creating the key", func(t *tx) (Key, error) { return r.Key, keyKind.add(t, r) })
	return k, secret, err
}

func errNoKey(account, id string) error {
	return Errorf(ErrNotFound, "key %.40q not found in the account %.40q: use an id from the list of keys", id, account)
}

// RevokeKey invalidates a key permanently. When it returns without an error, new
// requests with the key are rejected, and the OnCut callbacks of running requests
// have been called. Revoking a revoked key changes nothing.
func (s *Store) RevokeKey(ctx context.Context, account, id string) (Key, error) {
	revoked, err := update(ctx, s, "revoking the key", func(t *tx) (Key, error) {
		r := keyKind.load(t, account, id)
		if r == nil {
			return Key{}, errNoKey(account, id)
		}
		// A revoked key is not written again. If another process has just revoked
		// it, update still waits until that has taken effect.
		t.confirmed()
		if r.RevokedAt == nil {
			now := s.time()
			r.RevokedAt, r.ChangedBy = &now, actor(ctx)
			keyKind.save(t, r)
		}
		return r.Key, nil
	})
	if r, ok := keyKind.named(s.view.Load(), id); ok && Made(err) {
		return r.live.Key(), err // includes the last use
	}
	return revoked, err
}

// RemoveKey revokes a key, if necessary, and deletes its record.
func (s *Store) RemoveKey(ctx context.Context, account, id string) error {
	_, err := keyKind.take(ctx, s, "removing the key", account, id, errNoKey(account, id))
	return err
}

// LiveKey is the current state of a key: its methods follow the store. A key has only
// one LiveKey, also across changes of its record, so a request may keep it while it
// runs.
type LiveKey struct {
	record atomic.Pointer[keyRecord]

	mu      sync.Mutex
	revoked bool // callbacks have been or are being called
	calls   map[*func()]struct{}
}

func newLiveKey(r *keyRecord) *LiveKey {
	k := &LiveKey{revoked: r.RevokedAt != nil}
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

// OnCut calls f once when a request with the key must end: when the key is revoked, before
// RevokeKey returns, or at once if it is already revoked; and at CutRequests. f must return
// soon and must not write to the store. stop removes f, without waiting for a running call.
func (k *LiveKey) OnCut(f func()) (stop func()) {
	k.mu.Lock()
	if k.revoked {
		k.mu.Unlock()
		f()
		return func() {}
	}
	call := &f
	if k.calls == nil { // most keys are idle
		k.calls = make(map[*func()]struct{})
	}
	k.calls[call] = struct{}{}
	k.mu.Unlock()
	return func() {
		k.mu.Lock()
		delete(k.calls, call)
		k.mu.Unlock()
	}
}

// revoke calls the callbacks once. The record must already be revoked, so that requests
// that come later find the key revoked.
func (k *LiveKey) revoke() { k.cut(true) }

func (k *LiveKey) cut(revoked bool) {
	k.mu.Lock()
	calls := k.calls
	k.revoked, k.calls = k.revoked || revoked, nil
	k.mu.Unlock()
	for call := range calls {
		(*call)()
	}
}

// CutRequests ends the running requests of all keys. A request that begins meanwhile and
// calls OnCut before Serving is ended or refused.
func (s *Store) CutRequests() {
	for r := range keyKind.all(&s.view.Load().records) {
		r.live.cut(false)
	}
}
