package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Secret returns the gateway's own secret of this name, and stores what
// generate makes when there is none yet. All callers get the same one, from
// whatever process they ask. Names are of lower-case letters, digits and
// underscores, like "tunnel_identity".
func (s *Store) Secret(ctx context.Context, name string, generate func() ([]byte, error)) ([]byte, error) {
	notAllowed := func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, notAllowed) {
		return nil, fail(ErrInvalid, "a secret cannot have the name %.80q", name)
	}
	var value, generated []byte
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, secretPath(name))
		if err != nil {
			return Txn{}, err
		}
		if item.Exists() {
			value, err = decodeSecret(item)
			return Txn{}, err
		}
		if generated == nil {
			if generated, err = generate(); err != nil {
				return Txn{}, fmt.Errorf("generating it: %w", err)
			}
			if len(generated) == 0 {
				return Txn{}, fail(ErrInvalid, "it must not be empty")
			}
		}
		value = generated
		op, err := encode(item.Key, secretRecord{version{recordVersion}, value})
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{op}}, err
	})
	if err != nil {
		return nil, fmt.Errorf("getting the secret %s: %w", name, err)
	}
	return value, nil
}

// ReplaceSecret puts value in the place of a secret that is old; it may be there
// already.
func (s *Store) ReplaceSecret(ctx context.Context, name string, old, value []byte) error {
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, secretPath(name))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, fail(ErrNotFound, "it is not there")
		}
		kept, err := decodeSecret(item)
		switch {
		case err != nil || bytes.Equal(kept, value):
			return Txn{}, err
		case !bytes.Equal(kept, old):
			return Txn{}, fail(ErrConflict, "it was changed meanwhile")
		case len(value) == 0:
			return Txn{}, fail(ErrInvalid, "it must not be empty")
		}
		op, err := encode(item.Key, secretRecord{version{recordVersion}, value})
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{op}}, err
	})
	if err != nil {
		return fmt.Errorf("replacing the secret %s: %w", name, err)
	}
	return nil
}

func decodeSecret(item Item) ([]byte, error) {
	var r secretRecord
	if err := decode(item, &r); err != nil {
		return nil, err
	}
	if len(r.Value) == 0 {
		return nil, damaged(item, "it is empty")
	}
	return r.Value, nil
}
