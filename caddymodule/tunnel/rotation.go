package tunnel

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
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
	// Hello returns the number of the offer whose secret a connector has used, 0 if there
	// is none. It returns at once.
	Hello(connectorID, secret string) int64
	// Renew begins a rotation for a connector whose token lacks a pin of the gateway,
	// or has another one, unless one is pending.
	Renew(ctx context.Context, connectorID string)
	// Confirm records that a connector has stored the pin of the next identity.
	Confirm(ctx context.Context, connectorID, pin string)
	// Rotated handles the connector's answer to an offer, and reports whether it is stored.
	Rotated(ctx context.Context, connectorID string, answer link.Rotated) bool
}

// Rotate offers a connector its new token, if it has a tunnel and was not already
// offered the same one. It does not wait. Offline connectors get the offer when they
// connect.
func (h *Hub) Rotate(connectorID string) {
	if s, ok := h.Session(connectorID); ok {
		s.rotate()
	}
}

// pinState is what a session knows about the pins of its connector. It is guarded by
// Session.rotating.
type pinState struct {
	stored    []string // in the connector's token, as it reports; none: it supports one only
	offered   []string // that the connector was last offered because it lacked them
	confirmed string   // the next pin that was reported to Rotation
}

// rotate confirms the secret of the connector's hello, if that is new, and offers the
// connector its new token, if one is pending or its token has other pins than the gateway.
// It does not wait for the store: thousands of connectors may connect at once.
func (s *Session) rotate() {
	if rotation := s.hub.options.Load().Rotation; rotation != nil {
		go func() {
			defer panics.Recover(s.log(), "offering a connector a new token")
			ctx, cancel := context.WithTimeout(s.serving, rotationTimeout)
			defer cancel()
			s.rotating.Lock()
			defer s.rotating.Unlock()
			s.offerToken(ctx, rotation)
		}()
	}
}

// offerToken is rotate in its goroutine. The caller holds s.rotating.
func (s *Session) offerToken(ctx context.Context, rotation Rotation) {
	// First: with too many offers this one could become invalid.
	if s.unconfirmed != 0 && !rotation.Rotated(ctx, s.connector.ID, link.Rotated{Number: s.unconfirmed}) {
		return
	}
	s.unconfirmed = 0
	next := s.hub.NextPin()
	if next != "" && s.pins.confirmed != next && slices.Contains(s.pins.stored, next) {
		rotation.Confirm(ctx, s.connector.ID, next)
		s.pins.confirmed = next
	}
	pins := s.hub.pins()
	// Once for the same pins: the connector may be unable to store them.
	renew := len(s.pins.stored) > 0 && !slices.Equal(s.pins.stored, pins) && !slices.Equal(s.pins.offered, pins)
	if renew {
		rotation.Renew(ctx, s.connector.ID)
	}
	if !rotation.Pending(s.connector.ID) {
		return
	}
	offer, ok := rotation.Next(ctx, s.connector.ID)
	last := s.offered.Load()
	if !ok || !renew && last == offer.Number || !s.usable() {
		return
	}
	s.pins.offered = pins
	s.offered.Store(offer.Number)
	s.log().Info("offering the connector a new token")
	s.send(offer)
}

// rotated handles the answer to an offer, once. Its number is higher if the connector has
// a later offer of another gateway. It does not wait for the store: a late pong would end
// the tunnel.
func (s *Session) rotated(answer link.Rotated) {
	rotation, last := s.hub.options.Load().Rotation, s.offered.Load()
	if rotation == nil || link.CheckPins(answer.Pins) != nil {
		return
	}
	expected := last != 0 && answer.Number >= last && s.offered.CompareAndSwap(last, 0)
	go func() {
		defer panics.Recover(s.log(), "handling a connector's answer to a new token")
		// Independent of the session: the connector has already saved the token.
		ctx, cancel := context.WithTimeout(context.Background(), rotationTimeout)
		defer cancel()
		if expected {
			rotation.Rotated(ctx, s.connector.ID, answer)
		}
		if answer.Error == "" && len(answer.Pins) > 0 {
			s.rotating.Lock()
			s.pins.stored = answer.Pins
			s.rotating.Unlock()
			s.rotate()
		}
	}()
}
