package agent

import (
	"errors"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

var (
	errNotKept  = errors.New("its token is not kept in a configuration file")
	errNotOurs  = errors.New("the new token belongs to another connector or gateway")
	errOutdated = errors.New("the token was rotated while the hello was on its way")
)

// rotationRest is the pause after a rotation.
const rotationRest = time.Second

// rotating is what an agent needs to change its token while it runs.
type rotating struct {
	keep func(old, renewed string) error // nil: it cannot
	mu   sync.Mutex                      // held while a token is changed
	last renewal                         // guarded by the agent's reload.mu
}

// renewal is a token and what has taken its place.
type renewal struct{ old, renewed, secret string }

// apply renews the token of a setup, if it is the old one.
func (r renewal) apply(to *setup) {
	if r.old != "" && to.config.TunnelToken == r.old {
		to.config.TunnelToken, to.hello.Secret = r.renewed, r.secret
	}
}

// offer notes a token that the gateway offers. Only listen calls it.
func (s *session) offer(m link.Rotate) {
	select {
	case <-s.offers: // the gateway waits for the answer to the newer one alone
	default:
	}
	s.offers <- m
}

// rotations takes the tokens that the gateway offers, one after the other. It rests
// after each: a gateway that offers without end costs no more than a file in a
// second.
func (s *session) rotations() {
	for {
		select {
		case <-s.conn.Context().Done():
			return
		case offer := <-s.offers:
			s.rotate(offer)
		}
		select {
		case <-s.conn.Context().Done():
			return
		case <-time.After(rotationRest):
		}
	}
}

// rotate takes a token that the gateway offers, and answers when it is kept for
// good: from then on the gateway may let nobody in with the old one.
func (s *session) rotate(offer link.Rotate) {
	answer := link.Rotated{ID: offer.ID}
	if err := s.agent.takeToken(offer.TunnelToken); err != nil {
		answer.Error = legible(err.Error())
		s.agent.logger.Warn("cannot keep the new tunnel token that the gateway offers; the old one stays valid", "session", s.welcome.Session,
			"reason", err, "fix", "get the new token by `caddy gateway connector rotate NAME --show` on the gateway, and put it into tunnel_token")
	} else {
		s.agent.logger.Info("tunnel token rotated", "session", s.welcome.Session)
	}
	if err := s.send(answer); err != nil {
		s.fail(err)
	}
}

// takeToken keeps a new token, and uses its secret from now on. All else of a
// token stays: the address in it is one that has worked.
func (a *Agent) takeToken(offered string) error {
	a.rotation.mu.Lock()
	defer a.rotation.mu.Unlock()
	a.reload.mu.Lock()
	old, hello := a.config.TunnelToken, a.hello
	a.reload.mu.Unlock()
	token, err := link.ParseToken(old)
	if err != nil {
		return err
	}
	fresh, err := link.ParseToken(offered)
	switch {
	case err != nil:
		return err
	case fresh.Connector != token.Connector || fresh.Pin != token.Pin:
		return errNotOurs
	case fresh.Secret == token.Secret:
		return nil // the answer of before was lost
	case a.rotation.keep == nil:
		return errNotKept
	}
	hello.Secret = fresh.Secret
	if err := hello.Check(); err != nil {
		return err
	}
	token.Secret = fresh.Secret
	renewed := token.Encode()
	if err := a.rotation.keep(old, renewed); err != nil {
		return err
	}
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	a.rotation.last = renewal{old, renewed, fresh.Secret}
	a.rotation.last.apply(&a.setup)
	a.rotation.last.apply(&a.latest().setup) // what waits to be taken
	return nil
}

// greeting returns the hello to say now.
func (a *Agent) greeting() link.Hello {
	a.reload.mu.Lock()
	defer a.reload.mu.Unlock()
	return a.hello
}

// readable makes a refusal fit for a log and a terminal.
func readable(deny link.Deny) link.Deny {
	deny.Message, deny.Code = legible(deny.Message), legible(deny.Code)
	return deny
}

// refused returns what a refusal of a hello means: nothing, if its secret is no
// longer the one to say.
func (a *Agent) refused(said link.Hello, deny link.Deny) error {
	deny = readable(deny)
	if deny.Code == link.DenyCredentials && a.greeting().Secret != said.Secret {
		return errOutdated
	}
	return deny
}
