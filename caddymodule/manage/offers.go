package manage

import (
	"context"
	"errors"
)

// ErrIncomplete is wrapped by the error of [Service.Offers] when some upstreams
// did not say which models they have; the offers of the others are there.
var ErrIncomplete = errors.New("incomplete")

// Offer is a model that a connector has and no deployment leads to.
type Offer struct {
	Connector     string `json:"connector"` // id
	ConnectorName string `json:"connector_name"`
	Upstream      string `json:"upstream"`
	Model         string `json:"model"`
	// Name is a public name for it that is free.
	Name string `json:"name"`
}

// Offers lists the models of the account's online connectors that no deployment
// leads to yet.
func (s *Service) Offers(ctx context.Context, account string) ([]Offer, error) {
	return nil, faultf(ErrNotReady, "not built yet")
}
