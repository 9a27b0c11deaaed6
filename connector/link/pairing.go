package link

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

// Pending answers a hello with a claim: a person has to approve the device. The
// connection stays open until that is decided; pings continue as on a tunnel.
type Pending struct {
	// Fingerprint is the result of [Fingerprint]. The connector shows its own, so that a
	// person can compare the two.
	Fingerprint string    `json:"fingerprint"`
	ExpiresAt   time.Time `json:"expires_at"` // of the code
}

// Grant ends a pairing: the device is now a connector. It stores the token, closes the
// connection (CloseNone) and dials with the token. A grant contains a secret: logs and fmt
// do not show it.
type Grant struct {
	TunnelToken string `json:"tunnel_token"`
}

// The codes of [Deny] for a hello with a claim, in addition to [DenyHello],
// [DenyUnavailable] and [DenyShutdown].
const (
	DenyPairingUnknown = "pairing_unknown" // unknown code
	DenyPairingExpired = "pairing_expired" // not approved in time
	DenyPairingUsed    = "pairing_used"    // used by another device
	DenyPairingDenied  = "pairing_denied"  // denied by a person
	DenyPairingLimit   = "pairing_limit"   // too many attempts; the message contains the time to wait
	DenyPairingOff     = "pairing_off"     // pairing is disabled
)

const (
	claimSecretLength = 43 // base62: 256 bits
	maxClaim          = 64 // bytes
)

// Fingerprint returns the fingerprint of a device with this secret at the gateway with
// this pin, like "3f9a 07c2 b1d4 5e60". Both ends compute it. It differs for a man in the
// middle, and for another device with the same code. Its 64 bits cannot be searched
// during the lifetime of a code.
func Fingerprint(pin, secret string) string {
	hidden := sha256.Sum256([]byte(secret))
	sum := sha256.Sum256([]byte("postern pairing\x00" + pin + "\x00" + string(hidden[:])))
	var groups [4]string
	for i := range groups {
		groups[i] = hex.EncodeToString(sum[2*i : 2*i+2])
	}
	return strings.Join(groups[:], " ")
}

// checkClaim validates the claim and secret of a hello with a claim.
func (h Hello) checkClaim() error {
	switch {
	case h.Claim == "":
		return nil
	case h.Connector != "":
		return errors.New("checking hello: a claim and a connector's id are mutually exclusive")
	case len(h.Claim) > maxClaim || !text.IsPrintable(h.Claim):
		return fmt.Errorf("checking hello: the claim is longer than %d bytes or not printable", maxClaim)
	case !base62(h.Secret, claimSecretLength):
		return fmt.Errorf("checking hello: the secret of a claim is not %d of A-Z a-z 0-9", claimSecretLength)
	}
	return nil
}

// base62 reports whether s is n letters and digits.
func base62(s string, n int) bool {
	ok := len(s) == n
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	return ok
}

func (Pending) kind() string { return "pending" }
func (Grant) kind() string   { return "grant" }

// String hides the token.
func (Grant) String() string { return "grant" }

// GoString is [Grant.String], for %#v.
func (g Grant) GoString() string { return g.String() }

// LogValue implements [slog.LogValuer].
func (g Grant) LogValue() slog.Value { return slog.StringValue(g.String()) }
