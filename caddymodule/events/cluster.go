package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	// takeover is the maximum age of the deferred events that a new leader emits. It is longer
	// than the time until the loss of the former leader is noticed.
	takeover = 30 * time.Second
	// lostAfter is the time without contact after which a gateway has noticed that it has lost
	// the store.
	lostAfter = 20 * time.Second
	// maxDeferred bounds the deferred events.
	maxDeferred = 1000
)

// deferredEvent is an event that the leader should emit, and that this gateway emits if it
// becomes the leader soon.
type deferredEvent struct {
	Event
	since time.Time
}

// emitOnce emits an event of the store once for a cluster: all gateways get the change, and the
// leader emits the event. A new leader emits the latest events again, since the former one may
// not have emitted them. Receivers recognize duplicates by their ids.
func (s *sources) emitOnce(c store.Change, e Event) {
	s.emitIdentified(fmt.Append(nil, e.Name, " ", c.Account, " ", c.ID, " ", c.Revision, " ", c.Expiring), e)
}

// emitTunnelEvent is emitOnce for an event of a connector's tunnels, which all gateways notice at
// about the same time. A new leader may emit it again with another id.
func (s *sources) emitTunnelEvent(e Event) {
	s.emitIdentified(fmt.Append(nil, e.Name, " ", e.Data["connector_id"], " ", e.Data["upstream"], " ",
		time.Now().Truncate(offlineAfter).Unix()), e)
}

// emitIdentified emits an event if this gateway is alone or leads, and otherwise defers it. The id of the event is a
// hash of its identity, which is the same at all gateways, so that receivers recognize a repeated event.
func (s *sources) emitIdentified(identity []byte, e Event) {
	e.Alert = s.alertOf(e)
	if !s.store.Shared() {
		s.emit(e)
		return
	}
	sum := sha256.Sum256(identity)
	e.Data["id"] = hex.EncodeToString(sum[:16])
	if s.store.Leads() {
		s.emitDeferred()
		s.emit(e)
		return
	}
	if len(s.deferred) == maxDeferred {
		s.deferred = s.deferred[1:]
	}
	s.deferred = append(s.deferred, deferredEvent{e, time.Now()})
}

// emitHere emits an event that only this gateway knows of.
func (s *sources) emitHere(e Event) {
	e.Alert = s.alertOf(e)
	s.emit(e)
}

// emitDeferred emits the latest events that the former leader may not have emitted.
func (s *sources) emitDeferred() {
	for _, d := range s.deferred {
		if time.Since(d.since) < takeover {
			s.emit(d.Event)
		}
	}
	s.deferred = nil
}
