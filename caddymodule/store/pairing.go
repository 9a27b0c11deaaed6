package store

import "time"

// The states of a pairing. Expired is what a waiting or pending one becomes
// by time alone.
const (
	PairingWaiting  = "waiting"  // no device has used the code
	PairingPending  = "pending"  // a device waits for a decision
	PairingApproved = "approved" // and is a connector now
	PairingDenied   = "denied"
	PairingExpired  = "expired"
)

// PairingLife is how long a claim code can be used and decided on.
const PairingLife = 15 * time.Minute

// Pairing is a claim code and what became of it. The code is not
// stored.
type Pairing struct {
	ID        string     `json:"id"`
	Account   string     `json:"account"`
	CreatedBy string     `json:"created_by"`
	State     string     `json:"state"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	DecidedAt *time.Time `json:"decided_at"`
	DecidedBy string     `json:"decided_by,omitempty"`
	Device    *Device    `json:"device"`              // nil: none has used the code
	Connector string     `json:"connector,omitempty"` // id, once approved
	Replaced  bool       `json:"replaced,omitempty"`  // the connector was there before, for another device
}

// Device is what a device reports of itself when it uses a claim code, and where
// it comes from.
type Device struct {
	Hostname    string    `json:"hostname"`
	OS          string    `json:"os"`
	Version     string    `json:"version"`
	Address     string    `json:"address"`
	Fingerprint string    `json:"fingerprint"`
	Upstreams   []string  `json:"upstreams"`
	At          time.Time `json:"at"`
}

// open reports whether the pairing waits for a device or a decision.
func (p Pairing) open() bool { return p.State == PairingWaiting || p.State == PairingPending }

// asOf returns the pairing as it is now: time may have ended it.
func (p Pairing) asOf(now time.Time) Pairing {
	if p.open() && !now.Before(p.ExpiresAt) {
		p.State = PairingExpired
	}
	return p
}
