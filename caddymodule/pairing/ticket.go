package pairing

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// expiryGrace is the time from the expiry of a code to the denial of its device: an
// approval at the last moment may still be propagating through the store.
const expiryGrace = time.Second

// ticket represents one connected device. The goroutine that removes it from the
// service's map sends its only decision.
type ticket struct {
	id      string // of the pairing
	account string
	secret  string
	ends    time.Time
	decided chan tunnel.Decision // capacity 1
	timer   *time.Timer
}

// dismiss ends the ticket without a decision, so that the device reconnects.
func (t *ticket) dismiss() {
	t.timer.Stop()
	close(t.decided)
}

// admit registers the device's ticket and dismisses the one of an older connection.
// It returns false if the service is closed.
func (s *Service) admit(t *ticket) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	t.timer = time.AfterFunc(t.ends.Add(expiryGrace).Sub(s.options.Now()), func() { s.settle(t) })
	if old := s.tickets[t.id]; old != nil {
		old.dismiss()
	}
	s.tickets[t.id] = t
	s.mu.Unlock()
	s.notify(t.account)
	return true
}

// remove unregisters the device's ticket and reports whether it was registered.
func (s *Service) remove(t *ticket) bool {
	s.mu.Lock()
	registered := s.tickets[t.id] == t
	if registered {
		delete(s.tickets, t.id)
		t.timer.Stop()
	}
	s.mu.Unlock()
	if registered {
		s.notify(t.account)
	}
	return registered
}

// onChange is called by the store, also for decisions made by other processes.
func (s *Service) onChange(c store.Change) {
	if c.Kind != store.KindPairing {
		return
	}
	s.mu.Lock()
	t := s.tickets[c.ID]
	s.mu.Unlock()
	if t != nil {
		s.settle(t)
	}
}

// settle sends the device the stored decision, or the expiry of its code. It is
// called for the claim, for each change of the pairing, and at the expiry.
func (s *Service) settle(t *ticket) {
	p, ok := s.options.Store.Pairing(t.account, t.id)
	left := t.ends.Add(expiryGrace).Sub(s.options.Now())
	switch {
	case !ok:
		s.send(t, tunnel.Decision{Deny: denyUnknown})
	case p.State == store.PairingApproved:
		s.send(t, s.grant(t, p))
	case p.State == store.PairingDenied:
		s.send(t, tunnel.Decision{Deny: denyDenied})
	case left <= 0:
		s.send(t, tunnel.Decision{Deny: denyExpired})
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tickets[t.id] == t {
			t.timer.Reset(left) // the clock may have been set back
		}
	}
}

// grant returns the decision for an approved device. If its connector has been
// removed since, the gateway will reject the token.
func (s *Service) grant(t *ticket, p store.Pairing) tunnel.Decision {
	token, err := s.options.Token(p.Connector, t.secret)
	if err != nil {
		s.options.Logger.Error("failed to create the tunnel token of a paired device", "pairing_id", p.ID, "connector_id",
			p.Connector, "error", err)
		return tunnel.Decision{Deny: denyNoToken}
	}
	return tunnel.Decision{TunnelToken: token}
}

// send sends the device its decision, unless one was sent already.
func (s *Service) send(t *ticket, decision tunnel.Decision) {
	if s.remove(t) {
		t.decided <- decision
	}
}
