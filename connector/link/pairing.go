package link

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

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
