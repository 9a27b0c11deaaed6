package link

import "log/slog"

// Rotate offers a connector a new token in place of its own. The connector keeps
// it where its configuration is, for good, before it answers: from then on the
// gateway may forget the old one. Until the answer, both let it in. It holds a
// secret: logs and fmt do not show it.
type Rotate struct {
	ID          string `json:"id"` // repeated in the answer
	TunnelToken string `json:"tunnel_token"`
}

// Rotated answers a rotate. A connector that does not know of rotations says
// nothing.
type Rotated struct {
	ID string `json:"id"`
	// Error says why the connector cannot keep the new token, and goes on with
	// the old one; "" means that it has it, and uses it for each hello from now
	// on.
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
