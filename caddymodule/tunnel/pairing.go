package tunnel

import (
	"context"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// Device is a machine on which a pairing code was entered, as its hello describes
// it. It is not a connector yet; all of it comes from outside.
type Device struct {
	Code   string // as it was entered
	Secret string // becomes the connector's, once a person has approved

	Hostname  string
	OS        string // "linux/amd64"
	Version   string
	Remote    string // host, without port
	Upstreams []string
}

// Ticket is a device's place in the waiting room.
type Ticket struct {
	ID          string // of the pairing
	Fingerprint string
	ExpiresAt   time.Time
	// Decided gets one decision. If it is closed without one, or the decision is
	// empty, the connection is closed, and the device comes back and asks again.
	Decided <-chan Decision
	// Release is called once, when the hub is done with the ticket: the decision
	// was sent, or the device is gone.
	Release func()
}

// Decision is what became of a device: one of the two is set.
type Decision struct {
	TunnelToken string
	Deny        *link.Deny
}

// Pairing decides about devices.
type Pairing interface {
	// Claim takes a device into the waiting room, or returns why not. A device that
	// comes back, with the code and the secret of before, gets the decision if
	// there is one by now.
	Claim(ctx context.Context, d Device) (Ticket, *link.Deny)
}
