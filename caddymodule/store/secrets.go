package store

import (
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
