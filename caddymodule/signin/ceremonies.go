package signin

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/postern-dev/postern/caddymodule/store"
)

// maxAnswered bounds the remembered answers: with more within ceremonyLife, the
// oldest are dropped early.
const maxAnswered = 1 << 14

// ceremony is a challenge that waits for its answer. The browser keeps it, sealed:
// anyone can begin to sign in, which must not displace others or fill the memory.
type ceremony struct {
	User   string // id, for registrations
	Origin string
	Ends   time.Time
	// Edge and Process are where it was begun.
	Edge, Process string
	Data          *webauthn.SessionData
}

// ceremonies seals ceremonies with a key of the store, so that all its gateways can open
// them. A gateway does not remember answers over a restart, so it refuses the ceremonies
// that it began before.
type ceremonies struct {
	aead          cipher.AEAD
	edge, process string
	publish       func(Outcome)

	mu       sync.Mutex
	answered recent[string, bool] // by challenge
}

func newCeremonies(st *store.Store, publish func(Outcome)) (*ceremonies, error) {
	key, err := st.Secret(context.Background(), "passkey_ceremonies", func() ([]byte, error) {
		key := make([]byte, chacha20poly1305.KeySize)
		_, err := rand.Read(key)
		return key, err
	})
	if err != nil {
		return nil, fmt.Errorf("loading the key of passkey ceremonies: %w", err)
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, fmt.Errorf("loading the key of passkey ceremonies: %w", err)
	}
	return &ceremonies{aead: aead, edge: st.Edge(), process: rand.Text(), publish: publish, answered: recent[string, bool]{life: ceremonyLife, size: maxAnswered}}, nil
}

// begin returns a sealed ceremony for the browser.
func (c *ceremonies) begin(user, origin string, data *webauthn.SessionData, now time.Time) (string, error) {
	plain, err := json.Marshal(ceremony{user, origin, now.Add(ceremonyLife), c.edge, c.process, data})
	if err != nil {
		return "", fmt.Errorf("beginning a ceremony: %w", err)
	}
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nonce, nonce, plain, nil)), nil
}

// take opens a ceremony that has not expired. It succeeds once per ceremony.
func (c *ceremonies) take(id, origin, user string, now time.Time) (*webauthn.SessionData, error) {
	var o ceremony
	sealed, err := base64.RawURLEncoding.DecodeString(id)
	if err == nil && len(sealed) >= chacha20poly1305.NonceSizeX {
		nonce := sealed[:chacha20poly1305.NonceSizeX]
		if sealed, err = c.aead.Open(nil, nonce, sealed[len(nonce):], nil); err == nil {
			err = json.Unmarshal(sealed, &o)
		}
	}
	restarted := o.Edge == c.edge && o.Process != c.process
	first := err == nil && o.Data != nil && c.isFirst(o.Data.Challenge, now)
	if first {
		c.publish(Outcome{Answered: o.Data.Challenge})
	}
	if !first || restarted ||
		!now.Before(o.Ends) || o.Origin != origin || o.User != user {
		return nil, store.Errorf(ErrPasskey, "this took longer than five minutes or was already answered: start again")
	}
	return o.Data, nil
}

// isFirst records an answer and reports whether it is the first to its challenge.
func (c *ceremonies) isFirst(challenge string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, again := c.answered.get(challenge)
	c.answered.set(challenge, true, now)
	return !again
}
