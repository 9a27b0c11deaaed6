package store

import (
	"context"

	"github.com/postern-dev/postern/caddymodule/scope"
)

type keyRecord struct {
	header
	Key
	Hash digest `json:"hash"`

	scope scope.Scope // parsed
	live  *LiveKey
}

func (r *keyRecord) place() key { return key{r.Account, r.ID} }

func (r *keyRecord) check() (err error) {
	if r.scope, err = scope.Parse(r.Scope); err != nil {
		return err
	}
	return checkHash(r.Hash)
}

var keyKind = &kind[keyRecord, *keyRecord]{
	dir: dirKeys, prefix: prefixKey, seenAt: dirLastUsed,
	in:    func(r *records) *collection[*keyRecord] { return &r.keys },
	index: func(r *keyRecord) digest { return r.Hash },
	change: func(_ *records, r *keyRecord) Change {
		return Change{Kind: KindKey, Account: r.Account, ID: r.ID, Name: r.Name, Removed: r.RevokedAt != nil}
	},
	adopt: func(d *draft, old, next *keyRecord) {
		if old == nil {
			next.live = newLiveKey(next)
			return
		}
		next.live = old.live
		d.updates = append(d.updates, next)
	},
	// A removed key is revoked, for the requests that hold its LiveKey.
	removed: func(d *draft, old *keyRecord) {
		revoked := *old
		if revoked.RevokedAt == nil {
			revoked.RevokedAt = &d.now
		}
		d.updates = append(d.updates, &revoked)
	},
}

// CreateKey makes a key and returns it with its secret, which cannot be had
// again. Names of keys need not differ.
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
	err = s.update(ctx, "creating the key", func(t *tx) error {
		if _, err := t.account(account); err != nil {
			return err
		}
		if err := s.checkLimit(account, KindKey); err != nil {
			return err
		}
		keyKind.create(t, r)
		t.mark(markAccount(account))
		return nil
	})
	if err != nil {
		return Key{}, "", err
	}
	return r.Key, secret, nil
}

func errNoKey(account, id string) error {
	return Errorf(ErrNotFound, "there is no key %.40q in the account %.40q: give the id that the list of keys shows", id, account)
}

// RevokeKey makes a key invalid for good. When it returns without an error, no
// new request gets through with the key, and the OnRevoke callbacks of those
// that run have been called. Revoking a revoked key changes nothing.
func (s *Store) RevokeKey(ctx context.Context, account, id string) (Key, error) {
	revoked, err := update(ctx, s, "revoking the key", func(t *tx) (Key, error) {
		r := keyKind.load(t, account, id)
		if r == nil {
			return Key{}, errNoKey(account, id)
		}
		// A revoked key is not written again, but the view may still lack the
		// revocation, if another process has just written it: update waits.
		if r.RevokedAt == nil {
			now := s.time()
			r.RevokedAt, r.ChangedBy = &now, actor(ctx)
			keyKind.save(t, r)
		}
		return r.Key, nil
	})
	if err != nil {
		return Key{}, err
	}
	if r, ok := s.view.Load().keys.named(id); ok {
		return r.live.Key(), nil // knows the last use
	}
	return revoked, nil
}

// RemoveKey is RevokeKey, and leaves no record of the key, not even of one that
// was revoked before.
func (s *Store) RemoveKey(ctx context.Context, account, id string) error {
	_, err := keyKind.take(ctx, s, "removing the key", account, id, errNoKey(account, id))
	return err
}
