package rotation

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"

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
	id     string
	secret string
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
	return c.Rotation != nil && !c.Rotation.ByHand
}

// Next implements tunnel.Rotation. Within a process, it offers a connector the same
// token each time.
func (s *Service) Next(ctx context.Context, connectorID string) (link.Rotate, bool) {
	if !s.Pending(connectorID) {
		return link.Rotate{}, false
	}
	o, err := s.offer(ctx, connectorID)
	if err == nil {
		var token string
		if token, err = s.options.Token(connectorID, o.secret); err == nil {
			return link.Rotate{ID: o.id, TunnelToken: token}, true
		}
	}
	// Otherwise the tunnel or the rotation has ended meanwhile.
	if ctx.Err() == nil && s.Pending(connectorID) {
		s.options.Logger.Error("failed to offer a connector its new token", "connector_id", connectorID, "error", err)
	}
	return link.Rotate{}, false
}

// offer returns the offered secret of a connector, creating it if necessary.
func (s *Service) offer(ctx context.Context, connectorID string) (offer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.offers { // including those of removed connectors
		if !s.options.Store.IsNextSecret(id, o.secret) {
			delete(s.offers, id)
		}
	}
	if o, ok := s.offers[connectorID]; ok {
		return o, nil
	}
	secret, err := s.options.Store.OfferSecret(ctx, connectorID)
	if err != nil {
		return offer{}, err
	}
	o := offer{id: rand.Text()[:12], secret: secret}
	s.offers[connectorID] = o
	return o, nil
}

// Rotated implements tunnel.Rotation.
func (s *Service) Rotated(ctx context.Context, connectorID string, answer link.Rotated) {
	s.mu.Lock()
	o, ok := s.offers[connectorID]
	s.mu.Unlock()
	if !ok || o.id != answer.ID {
		return // the answer to an outdated offer
	}
	if answer.Error == "" {
		s.finish(ctx, connectorID, o.secret)
		return
	}
	if err := s.options.Store.FailRotation(ctx, connectorID, answer.Error); err != nil {
		s.options.Logger.Error("failed to record why a connector's token was not rotated", "connector_id", connectorID, "error", err)
		return
	}
	s.options.Logger.Warn("connector failed to save its new token: the old one stays valid", "connector_id", connectorID, "reason", answer.Error)
}

// Hello implements tunnel.Rotation. A hello with a new secret invalidates the old
// one.
func (s *Service) Hello(ctx context.Context, connectorID, secret string) {
	if s.options.Store.IsNextSecret(connectorID, secret) {
		s.finish(ctx, connectorID, secret)
	}
}

// finish ends a rotation. If that cannot be saved, both secrets stay valid, and the
// next hello tries again.
func (s *Service) finish(ctx context.Context, connectorID, secret string) {
	c, done, err := s.options.Store.FinishRotation(ctx, connectorID, secret)
	switch {
	case err != nil:
		s.options.Logger.Error("failed to finish a rotation: the old token stays valid, too", "connector_id", connectorID, "error", err)
	case done:
		s.options.Logger.Info("connector token rotated", "connector_id", connectorID, "name", c.Name, "account_id", c.Account)
	}
}
