package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Secret returns the gateway's own secret of this name, and stores what generate
// returns when there is none yet. All processes get the same one. Names are of
// lower-case letters, digits and underscores, like "tunnel_identity".
func (s *Store) Secret(ctx context.Context, name string, generate func() ([]byte, error)) ([]byte, error) {
	notAllowed := func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, notAllowed) {
		return nil, Errorf(ErrInvalid, "a secret cannot have the name %.80q", name)
	}
	path := dirSecrets + name
	var generated []byte
	return update(ctx, s, "getting the secret "+name, func(t *tx) (_ []byte, err error) {
		if value := readSecret(t, path); value != nil {
			return value, nil
		}
		if generated == nil {
			if generated, err = generate(); err != nil {
				return nil, fmt.Errorf("generating it: %w", err)
			}
			if len(generated) == 0 {
				return nil, Errorf(ErrInvalid, "it must not be empty")
			}
		}
		t.put(path, &secretRecord{Value: generated})
		return generated, nil
	})
}

// ReplaceSecret puts value in the place of a secret that is old; it may be there
// already.
func (s *Store) ReplaceSecret(ctx context.Context, name string, old, value []byte) error {
	path := dirSecrets + name
	return s.update(ctx, "replacing the secret "+name, func(t *tx) error {
		kept := readSecret(t, path)
		switch {
		case kept == nil:
			return Errorf(ErrNotFound, "it is not there")
		case bytes.Equal(kept, value):
			return nil
		case !bytes.Equal(kept, old):
			return Errorf(ErrConflict, "it was changed meanwhile")
		case len(value) == 0:
			return Errorf(ErrInvalid, "it must not be empty")
		}
		t.put(path, &secretRecord{Value: value})
		return nil
	})
}

// readSecret returns a secret, or nil if there is none.
func readSecret(t *tx, path string) []byte {
	var r secretRecord
	if t.read(path, &r) && len(r.Value) == 0 {
		t.err = damaged(Item{Key: path}, "it is empty")
	}
	return r.Value
}
