package manage

import "context"

// UpstreamModels is what one upstream of a connector says of its models.
type UpstreamModels struct {
	Upstream string   `json:"upstream"`
	Models   []string `json:"models"`
	// Error is why the models are not known.
	Error string `json:"error,omitempty"`
}

// UpstreamModels asks the upstreams of a connector, which must be online, for
// their models.
func (s *Service) UpstreamModels(ctx context.Context, account, connector string) ([]UpstreamModels, error) {
	return nil, faultf(ErrNotReady, "not built yet")
}
