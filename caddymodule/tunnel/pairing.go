package tunnel

import (
	"context"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// Device is a machine on which a pairing code was entered, as described by its hello.
// It is not a connector yet, and all fields are unverified.
type Device struct {
	Code   string // as entered
	Secret string // becomes the connector's secret once a user has approved

	Hostname  string
	OS        string // "linux/amd64"
	Version   string
	Remote    string // host, without port
	Upstreams []string
}

// Ticket represents a waiting device.
type Ticket struct {
	ID          string // of the pairing
	Fingerprint string
	ExpiresAt   time.Time
	// Decided receives one decision. If it is closed without one, or the decision
	// is empty, the connection is closed and the device reconnects.
	Decided <-chan Decision
	// Release is called once, when the hub is done with the ticket: the decision
	// was sent, or the device has disconnected.
	Release func()
}

// Decision is the decision about a device. Exactly one of the fields is set.
type Decision struct {
	TunnelToken string
	Deny        *link.Deny
}

// Pairing handles devices that are being paired.
type Pairing interface {
	// Claim returns a ticket for a device, or a deny. A device that reconnects with
	// the same code and secret gets the decision if it was made meanwhile.
	Claim(ctx context.Context, d Device) (Ticket, *link.Deny)
}
