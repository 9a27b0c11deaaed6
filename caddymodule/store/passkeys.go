package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Bounds of passkeys: the length of their id is WebAuthn's.
const (
	maxPasskeyID  = 1023
	maxCredential = 64 << 10
)

// Passkeys returns the passkeys of a user in the order of their creation.
func (s *Store) Passkeys(userID string) []Passkey {
	v := s.view.Load()
	if _, ok := v.users.get(userID); !ok {
		return nil
	}
	var out []Passkey
	for n, p := range v.passkeys.all() {
		if n.user == userID {
			p.ID, p.Credential = bytes.Clone(p.ID), bytes.Clone(p.Credential)
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Passkey) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), bytes.Compare(a.ID, b.ID))
	})
	return out
}

func checkPasskey(p Passkey) error {
	if err := checkLabel("passkey", p.Name); err != nil {
		return err
	}
	if len(p.ID) == 0 || len(p.ID) > maxPasskeyID {
		return fail(ErrInvalid, "the id of the passkey has %d bytes, not 1 to %d", len(p.ID), maxPasskeyID)
	}
	if len(p.Credential) > maxCredential || !json.Valid(p.Credential) {
		return fail(ErrInvalid, "the passkey cannot be stored: its credential is too long, or not JSON")
	}
	return nil
}

// AddPasskey gives a user a passkey, which nobody may have yet. Its time of
// creation is now.
func (s *Store) AddPasskey(ctx context.Context, userID string, p Passkey) error {
	if err := checkPasskey(p); err != nil {
		return err
	}
	p.CreatedAt = s.time()
	hash := hex.EncodeToString(passkeyHash(p.ID))
	err := s.update(ctx, func() (Txn, error) {
		user, _, err := s.user(ctx, userID)
		if err != nil {
			return Txn{}, err
		}
		item, err := s.kv.Get(ctx, passkeyPath(userID, p.ID))
		if err != nil {
			return Txn{}, err
		}
		taken := item.Exists()
		for n := range s.view.Load().passkeys.all() {
			taken = taken || n.hash == hash
		}
		if taken {
			return Txn{}, fail(ErrExists, "the passkey is in use already: sign in with it, or make another one")
		}
		t := Txn{If: []Compare{unchanged(user), unchanged(item)}}
		return t.put(put{item.Key, passkeyRecord{version{recordVersion}, userID, p}})
	})
	if err != nil {
		return fmt.Errorf("adding the passkey: %w", err)
	}
	return nil
}

// UpdatePasskey replaces the passkey of a user with the id of p, but for its
// time of creation.
func (s *Store) UpdatePasskey(ctx context.Context, userID string, p Passkey) error {
	if err := checkPasskey(p); err != nil {
		return err
	}
	err := s.changePasskey(ctx, userID, p.ID, func(item Item) (Txn, error) {
		old, err := decodePasskey(item)
		if err != nil {
			return Txn{}, err
		}
		next := p
		next.CreatedAt = old.CreatedAt
		return Txn{}.put(put{item.Key, passkeyRecord{version{recordVersion}, userID, next}})
	})
	if err != nil {
		return fmt.Errorf("updating the passkey: %w", err)
	}
	return nil
}

// RemovePasskey takes a passkey away from a user.
func (s *Store) RemovePasskey(ctx context.Context, userID string, id []byte) error {
	err := s.changePasskey(ctx, userID, id, func(item Item) (Txn, error) {
		return Txn{Then: []Op{Delete(item.Key)}}, nil
	})
	if err != nil {
		return fmt.Errorf("removing the passkey: %w", err)
	}
	return nil
}

func (s *Store) changePasskey(ctx context.Context, userID string, id []byte, f func(Item) (Txn, error)) error {
	unknown := fail(ErrNotFound, "the user has no such passkey: it was removed already")
	if !checkID(prefixUser, userID) {
		return unknown
	}
	return s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, passkeyPath(userID, id))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, unknown
		}
		t, err := f(item)
		t.If = append(t.If, unchanged(item))
		return t, err
	})
}
