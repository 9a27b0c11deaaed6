package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	// takeover is how long before it leads a gateway begins with the events of the store:
	// longer than it takes until the loss of the former leader is noticed.
	takeover = 30 * time.Second
	// lostAfter is after what time without contact a gateway has noticed that it has lost the store.
	lostAfter = 20 * time.Second
	// maxHeld bounds the events that a gateway holds for that.
	maxHeld = 1000
)

// held is an event that another gateway should emit.
type held struct {
	Event
	at time.Time
}

// emitOnce emits an event of the store once for a cluster: all of its gateways see the change,
// and the leader emits it. When a gateway becomes the leader, it emits the latest events, as
// the former one may not have. Receivers recognize them by their ids.
func (s *sources) emitOnce(c store.Change, e Event) {
	if !s.store.Shared() {
		s.emit(e)
		return
	}
	s.emitAs(fmt.Append(nil, e.Name, " ", c.Account, " ", c.ID, " ", c.Revision, " ", c.Expiring), e)
}

// emitOneOf is emitOnce for an event of a connector's tunnels, which all gateways notice at about
// the same time. After a change of the leader, it may come again with another id.
func (s *sources) emitOneOf(e Event) {
	if !s.store.Shared() {
		s.emit(e)
		return
	}
	s.emitAs(fmt.Append(nil, e.Name, " ", e.Data["connector_id"], " ", e.Data["upstream"], " ",
		time.Now().Truncate(offlineAfter).Unix()), e)
}

// emitAs emits an event if this gateway leads, and otherwise holds it. The same event has the
// same name at all gateways.
func (s *sources) emitAs(name []byte, e Event) {
	sum := sha256.Sum256(name)
	e.Data["id"] = hex.EncodeToString(sum[:16])
	if s.store.Leads() {
		s.emitHeld()
		s.emit(e)
		return
	}
	if len(s.held) == maxHeld {
		s.held = s.held[1:]
	}
	s.held = append(s.held, held{e, time.Now()})
}

// emitHeld emits the latest events that the former leader may not have emitted.
func (s *sources) emitHeld() {
	for _, h := range s.held {
		if time.Since(h.at) < takeover {
			s.emit(h.Event)
		}
	}
	s.held = nil
}
