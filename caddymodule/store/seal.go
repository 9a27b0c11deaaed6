package store

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// Sealer seals data with a secret of the store, so that all gateways of the store can open it.
type Sealer struct{ aead cipher.AEAD }

// Sealer returns the sealer of the store.
func (s *Store) Sealer(ctx context.Context) (Sealer, error) {
	if known := s.sealer.Load(); known != nil {
		return *known, nil
	}
	key, err := s.Secret(ctx, "seal", RandomKey)
	if err != nil {
		return Sealer{}, err
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return Sealer{}, fmt.Errorf("loading the key that seals data: %w", err)
	}
	s.sealer.Store(&Sealer{aead})
	return Sealer{aead}, nil
}

// Seal returns data that only Open with the same purpose can read.
func (s Sealer) Seal(purpose string, plain []byte) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce) // never fails, see its documentation
	return s.aead.Seal(nonce, nonce, plain, []byte(purpose))
}

var errSeal = errors.New("not sealed by this gateway")

// Open returns the data that Seal has sealed.
func (s Sealer) Open(purpose string, sealed []byte) ([]byte, error) {
	if len(sealed) < chacha20poly1305.NonceSizeX {
		return nil, errSeal
	}
	nonce, sealed := sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:]
	plain, err := s.aead.Open(nil, nonce, sealed, []byte(purpose))
	if err != nil {
		return nil, errSeal
	}
	return plain, nil
}
