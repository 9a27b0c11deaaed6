package dialect

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
)

// Sealer encrypts data that clients store for the gateway: thinking and summaries. Only
// this gateway can open it, and only for the same account and purpose. It is safe for
// concurrent use.
//
// The nonce is derived from the plaintext, as in SIV modes (RFC 5297). It needs no random
// numbers, and repeats only for the same text.
type Sealer struct {
	aead     cipher.AEAD // XChaCha20-Poly1305
	nonceKey []byte
}

// NewSealer returns a sealer. Its keys are derived from a secret of the gateway.
func NewSealer(secret []byte) (*Sealer, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "postern sealed text: key", chacha20poly1305.KeySize)
	if err != nil {
		return nil, fmt.Errorf("deriving the sealing key: %w", err)
	}
	nonceKey, err := hkdf.Key(sha256.New, secret, nil, "postern sealed text: nonce", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving the nonce key: %w", err)
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, fmt.Errorf("creating the sealing cipher: %w", err)
	}
	return &Sealer{aead, nonceKey}, nil
}

// The prefixes of sealed texts, by purpose. The nonce and the ciphertext follow in
// base64url.
const (
	carryingMark   = "gw2."  // signature of an omitted thinking block
	reasoningMark  = "gwr1." // encrypted_content of a reasoning item
	compactionMark = "gwc1." // encrypted_content of a compaction item
)

// seal appends a sealed text of the account.
func (e *Env) seal(b []byte, mark string, text []byte) []byte {
	bound := []byte(mark + e.Account) // the associated data
	mac := hmac.New(sha256.New, e.Sealer.nonceKey)
	mac.Write(bound)
	mac.Write([]byte{0}) // separator: neither marks nor accounts contain it
	mac.Write(text)
	nonce := mac.Sum(nil)[:chacha20poly1305.NonceSizeX:chacha20poly1305.NonceSizeX]
	sealed := e.Sealer.aead.Seal(nonce, nonce, text, bound)
	return base64.RawURLEncoding.AppendEncode(append(b, mark...), sealed)
}

// unseal returns a text that was sealed with the same mark and account, or "".
func (e *Env) unseal(mark, sealed string) string {
	encoded, ok := strings.CutPrefix(sealed, mark)
	if !ok {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(raw) < chacha20poly1305.NonceSizeX {
		return ""
	}
	nonce, ciphertext := raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:]
	text, err := e.Sealer.aead.Open(ciphertext[:0], nonce, ciphertext, []byte(mark+e.Account))
	if err != nil {
		return ""
	}
	return string(text)
}
