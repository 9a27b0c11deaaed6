package signin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// sealer seals data that browsers keep for the gateway.
type sealer struct{ store.Sealer }

// seal returns v, sealed for the browser. Only open with the same purpose can read it.
func (s sealer) seal(purpose string, v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("sealing for the browser: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(s.Seal(purpose, plain)), nil
}

// open decodes data from seal into v.
func (s sealer) open(purpose, sealed string, v any) error {
	data, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return err
	}
	plain, err := s.Open(purpose, data)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

// SecretLife is how long OpenSecret returns a secret after SealSecret.
const SecretLife = 5 * time.Minute

// sealedSecret is a secret for one page of a session.
type sealedSecret struct {
	Ends   time.Time
	Record string // id
	Secret string
}

// SealSecret seals the new secret of a record for the next page of a session. The browser keeps it, so
// that any gateway of the store can show it, and no gateway stores it.
func (s *Service) SealSecret(session store.Session, record, secret string) (string, error) {
	return s.sealer.seal("secret of "+session.ID, sealedSecret{s.now().Add(SecretLife), record, secret})
}

// OpenSecret returns the secret of a record that SealSecret has sealed for a session, "" if sealed is
// invalid or too old.
func (s *Service) OpenSecret(session store.Session, record, sealed string) string {
	var opened sealedSecret
	err := s.sealer.open("secret of "+session.ID, sealed, &opened)
	if err != nil || opened.Record != record || !s.now().Before(opened.Ends) {
		return ""
	}
	return opened.Secret
}
