package tunnel

import (
	"context"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// rotationTimeout bounds what a rotation takes of the store.
const rotationTimeout = 30 * time.Second

// Rotation brings connectors new tokens.
type Rotation interface {
	// Pending reports whether a connector is to be offered a new token. It returns
	// at once.
	Pending(connectorID string) bool
	// Next returns the offer, false if there is none by now.
	Next(ctx context.Context, connectorID string) (link.Rotate, bool)
	// Hello takes the secret that a connector was let in with while its token was
	// being rotated.
	Hello(ctx context.Context, connectorID, secret string)
	// Rotated takes the connector's answer to an offer.
	Rotated(ctx context.Context, connectorID string, answer link.Rotated)
}

// Rotate offers a connector its new token, if it has a tunnel now and has not
// been offered the same already. It does not wait. Those that come later are
// offered theirs when they do.
func (h *Hub) Rotate(connectorID string) {
	if s, ok := h.Session(connectorID); ok {
		s.rotate()
	}
}

// rotate offers the connector its new token, if there is one. It does not wait
// for the store: a connector that comes in may be one of thousands.
func (s *Session) rotate() {
	rotation := s.hub.options.Load().Rotation
	if rotation == nil || !rotation.Pending(s.connector.ID) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(s.serving, rotationTimeout)
		defer cancel()
		s.rotating.Lock()
		defer s.rotating.Unlock()
		offer, ok := rotation.Next(ctx, s.connector.ID)
		last := s.offered.Load()
		if !ok || last != nil && *last == offer.ID || !s.usable() {
			return
		}
		s.offered.Store(&offer.ID)
		s.log().Info("offering the connector a new token")
		s.send(offer)
	}()
}

// rotated takes the answer to an offer, once. It does not wait either: a pong
// that comes late ends a tunnel.
func (s *Session) rotated(answer link.Rotated) {
	rotation, last := s.hub.options.Load().Rotation, s.offered.Load()
	if rotation == nil || last == nil || *last != answer.ID || !s.offered.CompareAndSwap(last, nil) {
		return
	}
	go func() {
		// Not of the session: its connector has written that down already.
		ctx, cancel := context.WithTimeout(context.Background(), rotationTimeout)
		defer cancel()
		rotation.Rotated(ctx, s.connector.ID, answer)
	}()
}
