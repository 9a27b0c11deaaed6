package signin

import (
	"crypto/rand"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"
	lru "github.com/hashicorp/golang-lru/v2"

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
	// Edge and Process identify the gateway process that began it.
	Edge, Process string
	Data          *webauthn.SessionData
}

// ceremonies seals ceremonies, so that all gateways of the store can open them. A gateway
// forgets answers when it restarts, so it refuses the ceremonies that it began before.
type ceremonies struct {
	sealer
	edge, process string
	publish       func(Outcome)
	answered      *lru.Cache[string, struct{}] // challenges
}

func newCeremonies(st *store.Store, seal sealer, publish func(Outcome)) *ceremonies {
	answered, _ := lru.New[string, struct{}](maxAnswered) // no error: the size is positive
	return &ceremonies{sealer: seal, edge: st.Edge(), process: rand.Text(), publish: publish, answered: answered}
}

// begin returns a sealed ceremony for the browser.
func (c *ceremonies) begin(user, origin string, data *webauthn.SessionData, now time.Time) (string, error) {
	return c.seal("ceremony", ceremony{user, origin, now.Add(ceremonyLife), c.edge, c.process, data})
}

// take opens a ceremony that has not expired. It succeeds once per ceremony.
func (c *ceremonies) take(id, origin, user string, now time.Time) (*webauthn.SessionData, error) {
	var o ceremony
	err := c.open("ceremony", id, &o)
	restarted := o.Edge == c.edge && o.Process != c.process
	first := err == nil && o.Data != nil && c.isFirst(o.Data.Challenge)
	if first {
		c.publish(Outcome{Answered: o.Data.Challenge})
	}
	if !first || restarted || !now.Before(o.Ends) || o.Origin != origin || o.User != user {
		return nil, store.Errorf(ErrPasskey, "this took longer than five minutes or was already answered: start again")
	}
	return o.Data, nil
}

// isFirst records an answer and reports whether it is the first to its challenge.
func (c *ceremonies) isFirst(challenge string) bool {
	again, _ := c.answered.ContainsOrAdd(challenge, struct{}{})
	return !again
}
