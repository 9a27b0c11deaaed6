package link

import "log/slog"

// Rotate offers a new token to a connector. The connector durably stores it before it
// answers; from then on the gateway may reject the old one. Until the answer, both are
// valid. It contains a secret: logs and fmt do not show it.
type Rotate struct {
	ID          string `json:"id"` // repeated in the answer
	TunnelToken string `json:"tunnel_token"`
}

// Rotated answers a rotate. Connectors that do not support rotation send no answer.
type Rotated struct {
	ID string `json:"id"`
	// Error is the reason why the connector cannot store the new token and keeps the old
	// one. If it is "", the connector uses the new token from now on.
	Error string `json:"error,omitempty"`
}

func (Rotate) kind() string  { return "rotate" }
func (Rotated) kind() string { return "rotated" }

// String hides the token.
func (r Rotate) String() string { return "rotate " + short(r.ID) }

// GoString is [Rotate.String], for %#v.
func (r Rotate) GoString() string { return r.String() }

// LogValue implements [slog.LogValuer].
func (r Rotate) LogValue() slog.Value { return slog.StringValue(r.String()) }
