package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	jose "github.com/go-jose/go-jose/v4"
)

// algorithms are those with which ID tokens may be signed.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// maxKeys bounds the keys of an issuer, and maxRSA the bits of one: a verification with a key of a megabit takes
// seconds.
const maxKeys, minRSA, maxRSA = 100, 2048, 8192

// keySet is the keys of an issuer. They are fetched again when none of them fits.
type keySet struct {
	url    string
	client *client
	mu     sync.Mutex // one fetch at a time
	known  atomic.Pointer[[]jose.JSONWebKey]
}

// VerifySignature implements oidc.KeySet.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token, algorithms)
	if err != nil {
		return nil, err
	}
	known := k.known.Load()
	if payload, ok := verify(signed, *known); ok {
		return payload, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known.Load() == known {
		if err := k.fetch(ctx); err != nil {
			return nil, err
		}
	}
	if payload, ok := verify(signed, *k.known.Load()); ok {
		return payload, nil
	}
	return nil, errors.New("no key of the issuer fits the signature")
}

func verify(signed *jose.JSONWebSignature, keys []jose.JSONWebKey) ([]byte, bool) {
	for _, key := range keys {
		if id := signed.Signatures[0].Header.KeyID; id != "" && id != key.KeyID {
			continue
		}
		if payload, err := signed.Verify(&key); err == nil {
			return payload, true
		}
	}
	return nil, false
}

// fetch replaces the keys. It ignores keys that it cannot use.
func (k *keySet) fetch(ctx context.Context) error {
	var set struct{ Keys []json.RawMessage }
	if err := k.client.get(ctx, k.url, "", &set); err != nil {
		return err
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys[:min(len(set.Keys), maxKeys)] {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) == nil && isUsable(key) {
			keys = append(keys, key)
		}
	}
	k.known.Store(&keys)
	return nil
}

func isUsable(key jose.JSONWebKey) bool {
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSA && public.N.BitLen() <= maxRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}
