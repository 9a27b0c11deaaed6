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

// Sealer seals what clients carry for the gateway without having to know it:
// thinking and summaries. What it seals can be opened by this gateway alone, for
// the same account and use; all else is as if it were not there. It is safe for
// concurrent use.
//
// The nonce is computed from what is sealed, as in SIV modes (RFC 5297): it
// needs no random numbers, and can repeat only with the text itself.
type Sealer struct {
	aead     cipher.AEAD // XChaCha20-Poly1305
	nonceKey []byte
}

// NewSealer returns a sealer whose keys are derived from a secret of the
// gateway.
func NewSealer(secret []byte) (*Sealer, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "postern sealed text: key", chacha20poly1305.KeySize)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of sealed texts: %w", err)
	}
	nonceKey, err := hkdf.Key(sha256.New, secret, nil, "postern sealed text: nonce", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of nonces: %w", err)
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, fmt.Errorf("creating the cipher of sealed texts: %w", err)
	}
	return &Sealer{aead, nonceKey}, nil
}

// What sealed texts are for, and how they begin; behind that stand, in
// base64url, the nonce and the ciphertext.
const (
	carryingMark   = "gw2."  // the signature of a block of thinking that is left out
	reasoningMark  = "gwr1." // encrypted_content of a reasoning item
	compactionMark = "gwc1." // encrypted_content of a compaction item
)

// reasoningStore seals and opens the texts of one account.
type reasoningStore struct {
	sealer  *Sealer
	account string
}

// bound is what a sealed text is bound to.
func (v reasoningStore) bound(mark string) []byte { return []byte(mark + v.account) }

// append appends a text, sealed.
func (v reasoningStore) append(b []byte, mark string, text []byte) []byte {
	bound := v.bound(mark)
	mac := hmac.New(sha256.New, v.sealer.nonceKey)
	mac.Write(bound)
	mac.Write([]byte{0}) // ends what is bound: neither marks nor accounts hold it
	mac.Write(text)
	nonce := mac.Sum(nil)[:chacha20poly1305.NonceSizeX:chacha20poly1305.NonceSizeX]
	sealed := v.sealer.aead.Seal(nonce, nonce, text, bound)
	return base64.RawURLEncoding.AppendEncode(append(b, mark...), sealed)
}

// open is the text that was sealed for a use, "" if it was not sealed here and
// for that.
func (v reasoningStore) open(mark, sealed string) string {
	encoded, ok := strings.CutPrefix(sealed, mark)
	if !ok {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(raw) < chacha20poly1305.NonceSizeX {
		return ""
	}
	nonce, ciphertext := raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:]
	text, err := v.sealer.aead.Open(ciphertext[:0], nonce, ciphertext, v.bound(mark))
	if err != nil {
		return ""
	}
	return string(text)
}
