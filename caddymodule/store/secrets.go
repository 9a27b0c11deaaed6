package store

import (
	"context"
	"fmt"
	"strings"
)

type secretRecord struct {
	header
	Value []byte `json:"value"`
}

// Secret returns the gateway's secret with this name. If it does not exist yet, it is
// created with generate. All processes get the same secret. Names consist of lower-case
// letters, digits and underscores, like "tunnel_identity".
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

// readSecret returns a secret, or nil if it does not exist.
func readSecret(t *tx, path string) []byte {
	var r secretRecord
	if t.read(path, &r) && len(r.Value) == 0 {
		t.err = damaged(Item{Key: path}, "it is empty")
	}
	return r.Value
}
