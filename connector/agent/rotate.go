package agent

import (
	"errors"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

var (
	errNotKept  = errors.New("its token is not stored in a configuration file")
	errOutdated = errors.New("the token was rotated while the hello was on its way")
)

// offer queues the newest token that the gateway offers. Only listen calls it.
func (s *session) offer(m link.Rotate) {
	select {
	case <-s.offers: // the gateway waits only for the answer to the newest offer
	default:
	}
	s.offers <- m
}

// rotate stores a token that the gateway offers, and then answers. From then on the
// gateway may reject the old one.
func (s *session) rotate(offer link.Rotate) {
	answer := link.Rotated{Number: offer.Number}
	if err := s.leg.takeToken(s.leg.config.credentials, offer); err != nil {
		answer.Error = text.Short(err.Error())
		s.leg.Logger.Warn("failed to store the new tunnel token; the old one stays valid",
			"session", s.welcome.Session, "error", err, "fix", "get the new token on the gateway's machine with "+
				"`postern gateway connector rotate NAME --show`, and put it into tunnel_token")
	} else {
		token := s.leg.config.credentials.newest()
		answer.Number, answer.Pins = token.Number, token.Pins()
	}
	if err := s.send(answer); err != nil {
		s.fail(err)
	}
}

// takeToken stores the token of an offer, and uses it from now on. It stores the number of the
// offer, too: after a restart of this process, a gateway may send an earlier offer although only
// the secret of the later one is still valid.
func (a *Agent) takeToken(c *credentials, offer link.Rotate) error {
	a.rotation.Lock()
	defer a.rotation.Unlock()
	token, old := c.current()
	next, err := token.Renewed(offer)
	switch {
	case err != nil:
		return err
	case next == token:
		return nil // the previous answer was lost, or a later token is stored
	case a.Keep == nil:
		return errNotKept
	}
	message := "tunnel token rotated"
	if next.Secret == token.Secret {
		message = "new pins of the gateway stored"
	}
	hello := link.Hello{Connector: next.Connector, Secret: next.Secret, Upstreams: []string{"any"}}
	if err := hello.Check(); err != nil {
		return err
	}
	renewed := next.Encode()
	if err := a.Keep(old, renewed); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.text = next, renewed
	a.Logger.Info(message, "connector", token.Connector)
	return nil
}
