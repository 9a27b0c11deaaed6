package rotation

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Options configure a service.
type Options struct {
	// Store holds the rotations. Required.
	Store *store.Store
	// Token creates the tunnel token of a connector. Required.
	Token func(connectorID, secret string) (string, error)
	// Logger; nil discards.
	Logger *slog.Logger
}

// Service offers new tokens and records the results. Its methods are safe for
// concurrent use.
type Service struct {
	options Options

	mu     sync.Mutex
	offers map[string]offer // by connector id
}

// offer is a new secret of one connector.
type offer struct {
	store.Offer
	since time.Time // start of its rotation: a later one needs another secret
}

var _ tunnel.Rotation = (*Service)(nil)

// New returns a service. It need not be closed.
func New(o Options) *Service {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Service{options: o, offers: make(map[string]offer)}
}

// Pending implements tunnel.Rotation.
func (s *Service) Pending(connectorID string) bool {
	c, _ := s.options.Store.Connector(connectorID)
	return pending(c)
}

func pending(c store.Connector) bool { return c.Rotation != nil && !c.Rotation.ByHand }

// Next implements tunnel.Rotation. Within a process, it offers a connector the same
// token each time.
func (s *Service) Next(ctx context.Context, connectorID string) (link.Rotate, bool) {
	c, _ := s.options.Store.Connector(connectorID)
	if !pending(c) {
		return link.Rotate{}, false
	}
	o, err := s.offer(ctx, c)
	if err == nil {
		var token string
		if token, err = s.options.Token(connectorID, o.Secret); err == nil {
			return link.Rotate{Number: o.Number, TunnelToken: token}, true
		}
	}
	// The error does not matter if the tunnel or the rotation has ended meanwhile.
	if ctx.Err() == nil && s.Pending(connectorID) {
		s.options.Logger.Error("failed to offer a connector its new token", "connector_id", connectorID, "error", err)
	}
	return link.Rotate{}, false
}

// offer returns the offered secret of a connector with a pending rotation, creating it if
// necessary.
func (s *Service) offer(ctx context.Context, c store.Connector) (store.Offer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.offers { // including those of removed connectors
		if s.options.Store.OfferNumber(id, o.Secret) == 0 {
			delete(s.offers, id)
		}
	}
	if o, ok := s.offers[c.ID]; ok && o.since.Equal(c.Rotation.Since) {
		return o.Offer, nil
	}
	o, err := s.options.Store.OfferSecret(ctx, c.ID)
	if err == nil {
		s.offers[c.ID] = offer{o, c.Rotation.Since}
	}
	return o, err
}

// Renew implements tunnel.Rotation.
func (s *Service) Renew(ctx context.Context, connectorID string) {
	c, ok := s.options.Store.Connector(connectorID)
	if !ok || c.Rotation != nil {
		return
	}
	if _, err := s.options.Store.BeginRotation(ctx, c.Account, c.ID); err != nil {
		s.options.Logger.Error("failed to begin a rotation for the gateway's pins", "connector_id", connectorID, "error", err)
	}
}

// Confirm implements tunnel.Rotation.
func (s *Service) Confirm(ctx context.Context, connectorID, pin string) {
	if c, ok := s.options.Store.Connector(connectorID); !ok || c.NextPin == pin {
		return
	}
	if err := s.options.Store.ConfirmPin(ctx, connectorID, pin); err != nil {
		s.options.Logger.Error("failed to record that a connector has the next pin", "connector_id", connectorID,
			"error", err)
	}
}

// Rotated implements tunnel.Rotation.
func (s *Service) Rotated(ctx context.Context, connectorID string, answer link.Rotated) bool {
	if answer.Error == "" {
		return s.finish(ctx, connectorID, answer.Number)
	}
	err := s.options.Store.FailRotation(ctx, connectorID, answer.Error)
	if err != nil {
		s.options.Logger.Error("failed to record why a connector's token was not rotated", "connector_id", connectorID,
			"error", err)
	} else {
		s.options.Logger.Warn("connector failed to save its new token: the old one stays valid", "connector_id", connectorID,
			"reason", answer.Error)
	}
	return err == nil
}

// Hello implements tunnel.Rotation.
func (s *Service) Hello(connectorID, secret string) int64 {
	return s.options.Store.OfferNumber(connectorID, secret)
}

// finish ends a rotation, and reports whether that is saved. Otherwise all secrets stay
// valid, and the next hello tries again.
func (s *Service) finish(ctx context.Context, connectorID string, number int64) bool {
	c, done, err := s.options.Store.FinishRotation(ctx, connectorID, number)
	switch {
	case err != nil:
		s.options.Logger.Error("failed to finish a rotation: the old token stays valid, too", "connector_id", connectorID,
			"error", err)
	case done:
		s.options.Logger.Info("connector token rotated", "connector_id", connectorID, "name", c.Name, "account_id", c.Account)
	}
	return err == nil
}
