package manage

import (
	"context"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// Identity is the gateway's tunnel identity.
type Identity struct {
	Pin string `json:"pin"`
	// Connectors counts the connectors of all accounts, whose tokens contain the pin.
	Connectors int `json:"connectors"`
}

// Identity returns the gateway's identity.
func (s *Service) Identity(ctx context.Context) (Identity, error) {
	if err := operator(ctx); err != nil {
		return Identity{}, err
	}
	i := Identity{Pin: s.endpoint().Pin}
	for _, account := range s.store.Accounts() {
		i.Connectors += len(s.store.Connectors(account.ID))
	}
	return i, nil
}

// RotateIdentity replaces the gateway's identity. All tunnels are closed, and each connector must be paired again, or
// get a new token.
func (s *Service) RotateIdentity(ctx context.Context) (Identity, error) {
	if err := operator(ctx); err != nil {
		return Identity{}, err
	}
	key, err := link.NewIdentity()
	if err != nil {
		return Identity{}, err
	}
	if err := s.store.ReplaceIdentity(ctx, key); !store.Committed(err) {
		return Identity{}, err
	} else if s.audit(ctx, "identity.rotate", "", "", ""); err != nil {
		return Identity{}, err
	}
	return s.Identity(ctx)
}
