package pairing

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// expiryGrace is how long after the end of its code a device is told of it: an
// approval in the last moment may still be on its way through the store.
const expiryGrace = time.Second

// ticket is the place of one connected device. Whoever takes it out of the
// desk's map tells it the one decision.
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
// of it. It returns false if the desk is closed.
func (d *Desk) admit(t *ticket) bool {
	if !d.enter(t) {
		return false
	}
	d.notify(t.account)
	return true
}

func (d *Desk) enter(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	t.timer = time.AfterFunc(t.ends.Add(expiryGrace).Sub(d.now()), func() { d.expire(t) })
	if old := d.tickets[t.id]; old != nil {
		old.dismiss()
	}
	d.tickets[t.id] = t
	return true
}

// remove takes the device's place away and returns whether it had it.
func (d *Desk) remove(t *ticket) bool {
	if !d.leave(t) {
		return false
	}
	d.notify(t.account)
	return true
}

func (d *Desk) leave(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] != t {
		return false
	}
	delete(d.tickets, t.id)
	t.timer.Stop()
	return true
}

// expire is called when the code has run out.
func (d *Desk) expire(t *ticket) {
	if d.settle(t) {
		return
	}
	if left := t.ends.Add(expiryGrace).Sub(d.now()); left > 0 { // the clock was set back
		d.postpone(t, left)
		return
	}
	d.tell(t, tunnel.Decision{Deny: denyExpired()})
}

// postpone has expire called again.
func (d *Desk) postpone(t *ticket, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tickets[t.id] == t {
		t.timer.Reset(left)
	}
}

// onChange is called by the store, also for decisions of other processes.
func (d *Desk) onChange(c store.Change) {
	if c.Kind != store.KindPairing {
		return
	}
	d.mu.Lock()
	t := d.tickets[c.ID]
	d.mu.Unlock()
	if t != nil {
		d.settle(t)
	}
}

// settle tells the device what the store says was decided about it, if that is
// so, and returns whether it is.
func (d *Desk) settle(t *ticket) bool {
	p, ok := d.store.Pairing(t.account, t.id)
	if !ok {
		d.tell(t, tunnel.Decision{Deny: denyUnknown()})
		return true
	}
	return d.decide(t, p)
}

// decide is settle for a pairing that has been read.
func (d *Desk) decide(t *ticket, p store.Pairing) bool {
	switch p.State {
	case store.PairingApproved:
		d.tell(t, d.grant(t, p))
	case store.PairingDenied:
		d.tell(t, tunnel.Decision{Deny: denyDenied()})
	default: // also expired, until its grace is over
		return false
	}
	return true
}

// grant makes the decision for an approved device. If its connector has been
// removed since, the token tells the device so.
func (d *Desk) grant(t *ticket, p store.Pairing) tunnel.Decision {
	token, err := d.token(p.Connector, t.secret)
	if err != nil {
		d.log.Error("making the tunnel token of a paired device", "pairing", p.ID, "connector", p.Connector, "error", err)
		return tunnel.Decision{Deny: denyNoToken()}
	}
	return tunnel.Decision{TunnelToken: token}
}

// tell gives the device its decision, unless it has got one.
func (d *Desk) tell(t *ticket, decision tunnel.Decision) {
	if d.remove(t) {
		t.decided <- decision
	}
}
