package dialect

import "crypto/rand"

// NewRequestID returns an id for the headers x-request-id and request-id and
// for error bodies: "req_" and 26 base32 characters, at least 128 random bits.
func NewRequestID() string { return "req_" + rand.Text() }
