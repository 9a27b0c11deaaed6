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
	t.timer = time.AfterFunc(t.ends.Add(expiryGrace).Sub(s.now()), func() { s.expire(t) })
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

// expire is called when the code has run out.
func (s *Service) expire(t *ticket) {
	if s.settle(t) {
		return
	}
	if left := t.ends.Add(expiryGrace).Sub(s.now()); left > 0 { // the clock was set back
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tickets[t.id] == t {
			t.timer.Reset(left)
		}
		return
	}
	s.send(t, tunnel.Decision{Deny: denyExpired})
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

// settle sends the device what was decided about it according to the store, and
// reports whether something was.
func (s *Service) settle(t *ticket) bool {
	p, ok := s.store.Pairing(t.account, t.id)
	if !ok {
		s.send(t, tunnel.Decision{Deny: denyUnknown})
		return true
	}
	return s.decide(t, p)
}

// decide is settle for a pairing that has been read.
func (s *Service) decide(t *ticket, p store.Pairing) bool {
	switch p.State {
	case store.PairingApproved:
		s.send(t, s.grant(t, p))
	case store.PairingDenied:
		s.send(t, tunnel.Decision{Deny: denyDenied})
	default: // also expired, until its grace is over
		return false
	}
	return true
}

// grant makes the decision for an approved device. If its connector has been
// removed since, the gateway refuses the token.
func (s *Service) grant(t *ticket, p store.Pairing) tunnel.Decision {
	token, err := s.token(p.Connector, t.secret)
	if err != nil {
		s.log.Error("failed to make the tunnel token of a paired device", "pairing_id", p.ID, "connector_id", p.Connector, "error", err)
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
