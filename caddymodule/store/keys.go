package store

import (
	"context"
	"fmt"

	"github.com/postern-dev/postern/caddymodule/scope"
)

// CreateKey makes a key and returns it with its secret, which cannot be had
// again. Names of keys need not differ.
func (s *Store) CreateKey(ctx context.Context, account, name, scopeText string) (Key, string, error) {
	if err := checkLabel("key", name); err != nil {
		return Key{}, "", err
	}
	parsed, err := scope.Parse(scopeText)
	if err != nil {
		return Key{}, "", fail(ErrInvalid, "%v", err)
	}
	secret := newSecret(prefixSecret)
	hash, _ := hashSecret(prefixSecret, secret)
	now := s.time()
	r := keyRecord{version{recordVersion}, Key{
		ID: newID(prefixKey, s.now()), Account: account, Name: name, Scope: parsed.String(), CreatedAt: now, CreatedBy: actor(ctx),
	}, hexDigest(hash)}
	err = s.update(ctx, func() (Txn, error) {
		owner, err := s.account(ctx, account)
		if err == nil {
			err = s.checkLimit(account, KindKey)
		}
		if err != nil {
			return Txn{}, err
		}
		t := Txn{If: []Compare{unchanged(owner), {Key: keyPath(account, r.ID)}}}
		return t.put(put{keyPath(account, r.ID), r}, put{markAccount(account), version{recordVersion}})
	})
	if err != nil {
		return Key{}, "", fmt.Errorf("creating the key: %w", err)
	}
	return r.Key, secret, nil
}

// RevokeKey makes a key invalid for good. When it returns without an error, no
// new request gets through with the key, and the OnRevoke callbacks of those
// that run have been called. Revoking a revoked key changes nothing.
func (s *Store) RevokeKey(ctx context.Context, account, id string) (Key, error) {
	if !checkID(prefixKey, id) || !checkAccount(account) {
		return Key{}, fail(ErrNotFound, "there is no key %.40q in the account %.40q: give the id that the list of keys shows", id, account)
	}
	var r keyRecord
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, keyPath(account, id))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, fail(ErrNotFound, "there is no key %q in the account %q: give the id that the list of keys shows", id, account)
		}
		if r, _, err = decodeKey(item); err != nil {
			return Txn{}, err
		}
		// Also of a revoked key the view may still lack the revocation, if
		// another process has just written it; the answer must wait for it.
		if r.RevokedAt != nil {
			return Txn{}, s.reach(ctx, item.ModRevision)
		}
		now := s.time()
		r.RevokedAt, r.ChangedBy = &now, actor(ctx)
		op, err := encode(item.Key, r)
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{op}}, err
	})
	if err != nil {
		return Key{}, fmt.Errorf("revoking the key: %w", err)
	}
	if live, ok := s.view.Load().keys.get(id); ok {
		return live.Key(), nil // knows the last use
	}
	return r.Key, nil
}

// RemoveKey is RevokeKey, and leaves no record of the key, not even of one that
// was revoked before.
func (s *Store) RemoveKey(ctx context.Context, account, id string) error {
	unknown := fail(ErrNotFound, "there is no key %.40q in the account %.40q: give the id that the list of keys shows", id, account)
	if !checkID(prefixKey, id) || !checkAccount(account) {
		return unknown
	}
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, keyPath(account, id))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, unknown
		}
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{Delete(item.Key), Delete(lastUsedPath(account, id))}}, nil
	})
	if err != nil {
		return fmt.Errorf("removing the key: %w", err)
	}
	return nil
}
