package tunnel

import (
	"context"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// rotationTimeout bounds one step of a rotation in the store.
const rotationTimeout = 30 * time.Second

// Rotation provides connectors with new tokens.
type Rotation interface {
	// Pending reports whether a connector should be offered a new token. It returns
	// at once.
	Pending(connectorID string) bool
	// Next returns the offer, false if the rotation is no longer pending.
	Next(ctx context.Context, connectorID string) (link.Rotate, bool)
	// Hello handles an accepted secret of a connector whose token is being rotated.
	Hello(ctx context.Context, connectorID, secret string)
	// Rotated handles the connector's answer to an offer.
	Rotated(ctx context.Context, connectorID string, answer link.Rotated)
}

// Rotate offers a connector its new token, if it has a tunnel and was not already
// offered the same one. It does not wait. Offline connectors get the offer when they
// connect.
func (h *Hub) Rotate(connectorID string) {
	if s, ok := h.Session(connectorID); ok {
		s.rotate()
	}
}

// rotate offers the connector its new token, if one is pending. It does not wait for
// the store: thousands of connectors may connect at once.
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

// rotated handles the answer to an offer, once. It does not wait for the store: a
// late pong would end the tunnel.
func (s *Session) rotated(answer link.Rotated) {
	rotation, last := s.hub.options.Load().Rotation, s.offered.Load()
	if rotation == nil || last == nil || *last != answer.ID || !s.offered.CompareAndSwap(last, nil) {
		return
	}
	go func() {
		// Independent of the session: the connector has already saved the token.
		ctx, cancel := context.WithTimeout(context.Background(), rotationTimeout)
		defer cancel()
		rotation.Rotated(ctx, s.connector.ID, answer)
	}()
}
