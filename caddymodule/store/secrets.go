package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
)

type secretRecord struct {
	header
	Value []byte `json:"value"`
}

// RandomKey generates a [Store.Secret] of 32 bytes.
func RandomKey() ([]byte, error) {
	key := make([]byte, 32)
	rand.Read(key) // never fails, see its documentation
	return key, nil
}

// Secret returns the gateway's secret with this name. If it does not exist yet, it is
// created with generate. All processes get the same secret. Names consist of lower-case
// letters, digits and underscores, like "quic_token".
func (s *Store) Secret(ctx context.Context, name string, generate func() ([]byte, error)) ([]byte, error) {
	notAllowed := func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, notAllowed) {
		return nil, Errorf(ErrInvalid, "a secret cannot have the name %.80q", name)
	}
	path, once := dirSecrets+name, sync.OnceValues(generate)
	return update(ctx, s, "getting the secret "+name, func(t *tx) ([]byte, error) {
		var r secretRecord
		if t.read(path, &r) && len(r.Value) == 0 {
			return nil, damaged(Item{Key: path}, "it is empty")
		}
		if t.err != nil || len(r.Value) > 0 {
			return r.Value, nil
		}
		generated, err := once()
		switch {
		case err != nil:
			return nil, fmt.Errorf("generating it: %w", err)
		case len(generated) == 0:
			return nil, Errorf(ErrInvalid, "it must not be empty")
		}
		t.put(path, &secretRecord{Value: generated})
		return generated, nil
	})
}
