package pairing

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// expiryGrace is how long after the end of its code a device is refused: an
// approval in the last moment may still be on its way through the store.
const expiryGrace = time.Second

// ticket is the place of one connected device. What takes it out of the
// service's map sends it the one decision.
type ticket struct {
	id      string // of the pairing
	account string
	secret  string
	ends    time.Time
	decided chan tunnel.Decision // with room for one
	timer   *time.Timer
}

// dismiss has the device come back and ask again.
func (t *ticket) dismiss() {
	t.timer.Stop()
	close(t.decided)
}

// admit gives the device its place, in which there may be an older connection
// of it. It returns false if the service is closed.
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

// remove takes the device's place away and returns whether it had it.
func (s *Service) remove(t *ticket) bool {
	s.mu.Lock()
	had := s.tickets[t.id] == t
	if had {
		delete(s.tickets, t.id)
		t.timer.Stop()
	}
	s.mu.Unlock()
	if had {
		s.notify(t.account)
	}
	return had
}

// onChange is called by the store, also for decisions of other processes.
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

// settle sends the device what was decided about it according to the store, or that
// its code has run out. It is called at the claim, for each change, and at the end.
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
			t.timer.Reset(left) // as the clock may have been set back
		}
	}
}

// grant makes the decision for an approved device. If its connector has been
// removed since, the gateway refuses the token.
func (s *Service) grant(t *ticket, p store.Pairing) tunnel.Decision {
	token, err := s.options.Token(p.Connector, t.secret)
	if err != nil {
		s.options.Logger.Error("failed to make the tunnel token of a paired device", "pairing_id", p.ID, "connector_id", p.Connector, "error", err)
		return tunnel.Decision{Deny: denyNoToken}
	}
	return tunnel.Decision{TunnelToken: token}
}

// send gives the device its decision, unless it has got one.
func (s *Service) send(t *ticket, decision tunnel.Decision) {
	if s.remove(t) {
		t.decided <- decision
	}
}
