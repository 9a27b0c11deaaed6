package signin

import (
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/text"
)

// Outcome is the outcome of an [Attempt] or a confirmation, as gateways of a cluster send it to each
// other. Who may be the hash of a password.
type Outcome struct {
	text.Secrets
	Address  string // of the client
	Who      []byte // hash of a name, or of the id of a user
	SignedIn bool   // the user was signed in, and had to confirm the password; there is no Address
	Right    bool   // it was successful
	Answered string // the challenge of a passkey that was answered; the other fields are empty
}

// count counts an outcome, here and at the peers.
func (s *Service) count(o Outcome) {
	s.Receive(o)
	s.publish(o)
}

// Receive counts an outcome that a peer has sent.
func (s *Service) Receive(o Outcome) {
	now, client := s.now(), fair.Parse(o.Address)
	var user subject
	switch hasName := copy(user[:], o.Who) > 0; {
	case o.Answered != "":
		s.ceremonies.isFirst(o.Answered)
	case o.SignedIn && o.Right:
		s.guard.users.Forgive(user, -1)
	case o.SignedIn:
		s.guard.users.Fail(user, now)
	case o.Right:
		s.guard.succeeded(client, user)
	case hasName:
		s.guard.failed(client, user, now)
	default:
		s.guard.addressFailed(client, now)
	}
}
