package signin

import (
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postern-dev/postern/caddymodule/store"
)

// ceremony is a challenge that waits for its answer. The browser keeps it, sealed:
// anyone can begin to sign in, which must not displace others or fill the memory.
type ceremony struct {
	User   string // id, for registrations
	Origin string
	Ends   time.Time
	Data   *webauthn.SessionData
}

// sealCeremony returns a sealed ceremony for the browser.
func (s sealer) sealCeremony(user, origin string, data *webauthn.SessionData, now time.Time) (string, error) {
	return s.seal("ceremony", ceremony{user, origin, now.Add(ceremonyLife), data})
}

var errLate = store.Errorf(ErrPasskey, "this took longer than five minutes or was already completed: start again")

// openCeremony opens a ceremony that has not expired. The store records right answers, so that a ceremony takes only
// one.
func (s sealer) openCeremony(id, origin, user string, now time.Time) (*webauthn.SessionData, error) {
	var o ceremony
	err := s.open("ceremony", id, &o)
	if err != nil || o.Data == nil || !now.Before(o.Ends) || o.Origin != origin || o.User != user {
		return nil, errLate
	}
	return o.Data, nil
}
