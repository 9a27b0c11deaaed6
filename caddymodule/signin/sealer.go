package signin

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/postern-dev/postern/caddymodule/store"
)

// sealer seals what browsers keep for the gateway, with a key of the store: all its gateways
// can open it.
type sealer struct{ aead cipher.AEAD }

func newSealer(st *store.Store) (sealer, error) {
	key, err := st.Secret(context.Background(), "browser_seal", func() ([]byte, error) {
		key := make([]byte, chacha20poly1305.KeySize)
		_, err := rand.Read(key)
		return key, err
	})
	if err != nil {
		return sealer{}, fmt.Errorf("loading the key of what browsers keep: %w", err)
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return sealer{}, fmt.Errorf("loading the key of what browsers keep: %w", err)
	}
	return sealer{aead}, nil
}

// seal returns v for the browser. It opens for the same purpose alone.
func (s sealer) seal(purpose string, v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("sealing for the browser: %w", err)
	}
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, []byte(purpose))), nil
}

var errSeal = errors.New("not sealed by this gateway")

// open reads what seal returned into v.
func (s sealer) open(purpose, sealed string, v any) error {
	data, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(data) < chacha20poly1305.NonceSizeX {
		return errSeal
	}
	nonce := data[:chacha20poly1305.NonceSizeX]
	plain, err := s.aead.Open(nil, nonce, data[len(nonce):], []byte(purpose))
	if err != nil {
		return errSeal
	}
	return json.Unmarshal(plain, v)
}

// HeldFor is how long a browser may wait before it shows a secret that it holds.
const HeldFor = 5 * time.Minute

// held is a secret for one page of a session.
type held struct {
	Ends   time.Time
	Record string // id
	Secret string
}

// Hold seals the new secret of a record for the next page of a session. The browser holds it, so
// that any gateway of the store can show it, and none stores it.
func (s *Service) Hold(session store.Session, record, secret string) (string, error) {
	return s.sealer.seal("secret of "+session.ID, held{s.now().Add(HeldFor), record, secret})
}

// Held returns the secret of a record that Hold sealed for a session, "" if it was not, or too
// long ago.
func (s *Service) Held(session store.Session, record, sealed string) string {
	var h held
	if s.sealer.open("secret of "+session.ID, sealed, &h) != nil || h.Record != record || !s.now().Before(h.Ends) {
		return ""
	}
	return h.Secret
}
