package agent

import (
	"errors"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

var (
	errNotKept  = errors.New("its token is not stored in a configuration file")
	errNotOurs  = errors.New("the new token belongs to another connector or gateway")
	errOutdated = errors.New("the token was rotated while the hello was on its way")
)

// offer queues the newest token that the gateway offers. Only listen calls it.
func (s *session) offer(m link.Rotate) {
	select {
	case <-s.offers: // the gateway only waits for the answer to the newest one
	default:
	}
	s.offers <- m
}

// rotate stores a token that the gateway offers, and then answers. From then on the
// gateway may reject the old one.
func (s *session) rotate(offer link.Rotate) {
	answer := link.Rotated{ID: offer.ID}
	if err := s.agent.takeToken(s.config.credentials, offer.TunnelToken); err != nil {
		answer.Error = text.Short(err.Error())
		s.agent.Logger.Warn("failed to store the new tunnel token; the old one stays valid", "session", s.welcome.Session,
			"error", err, "fix", "get the new token with `caddy gateway connector rotate NAME --show` on the gateway, and put it into tunnel_token")
	} else {
		s.agent.Logger.Info("tunnel token rotated", "session", s.welcome.Session)
	}
	if err := s.send(answer); err != nil {
		s.fail(err)
	}
}

// takeToken stores the secret of a new token, and uses it from now on. The other fields
// of the token stay: its address has worked.
func (a *Agent) takeToken(c *credentials, offered string) error {
	a.rotation.Lock()
	defer a.rotation.Unlock()
	token, old := c.current()
	fresh, err := link.ParseToken(offered)
	switch {
	case err != nil:
		return err
	case fresh.Connector != token.Connector || fresh.Pin != token.Pin:
		return errNotOurs
	case fresh.Secret == token.Secret:
		return nil // the previous answer was lost
	case a.Keep == nil:
		return errNotKept
	}
	token.Secret = fresh.Secret
	if err := (link.Hello{Connector: token.Connector, Secret: token.Secret, Upstreams: []string{"any"}}).Check(); err != nil {
		return err
	}
	renewed := token.Encode()
	if err := a.Keep(old, renewed); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.text = token, renewed
	return nil
}
