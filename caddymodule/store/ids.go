package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

const (
	prefixKey       = "key_"
	prefixConnector = "con_"
	prefixUser      = "usr_"
	prefixSession   = "ses_"
	prefixLink      = "lnk_"
	prefixToken     = "mgt_"
	prefixPairing   = "pair_"
	prefixSetup     = "use_"
	prefixOperation = "op_"
	prefixGroup     = "grp_"

	prefixSecret      = "sk-svc-" // of keys
	prefixTokenSecret = "pmt_"    // of management tokens; other secrets have no prefix
)

// secretDigits is the length of 256 bits in base 62, which double-click
// selects as one word: 62^42 < 2^256 < 62^43.
const secretDigits = 43

// digest is the SHA-256 of a secret, in JSON as hexadecimal digits.
type digest [sha256.Size]byte

func (h digest) MarshalText() ([]byte, error) {
	return hex.AppendEncode(nil, h[:]), nil
}

func (h *digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(h) || len(text)%2 != 0 {
		return fmt.Errorf("a SHA-256 has %d hexadecimal digits, not %d", hex.EncodedLen(len(h)), len(text))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// idEncoding preserves the order of the bytes, so that ids sort by time.
var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// newID returns prefix and 26 base32 characters of a UUIDv7 (RFC 9562 §5.7): 48 bits of
// milliseconds and 12 bits of their fraction (§6.2, method 3), so that ids within a
// millisecond are also in order, then random bits except for the variant.
func newID(prefix string, now time.Time) string {
	var random [8]byte
	rand.Read(random[:]) // never fails, see its documentation
	const version = 7 << 12
	fraction := uint16(now.Nanosecond() % int(time.Millisecond) << 12 / int(time.Millisecond))
	id := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli()))[2:]
	id = binary.BigEndian.AppendUint16(id, version|fraction)
	id = append(id, random[:]...)
	id[8] = id[8]&0x3f | 0x80
	return prefix + idEncoding.EncodeToString(id)
}

// checkID reports whether s has the form of an id from newID.
func checkID(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	notAllowed := func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'v') }
	return ok && len(rest) == 26 && !strings.ContainsFunc(rest, notAllowed)
}

// shownSecret returns the part of a key that is stored and shown: 8 of its 43 digits.
func shownSecret(secret string) string {
	const digits = 4
	return secret[:len(prefixSecret)+digits] + "…" + secret[len(secret)-digits:]
}

// newSecret returns prefix and 256 random bits as 43 letters and digits, and the hash of
// the whole string.
func newSecret(prefix string) (string, digest) {
	var bits [32]byte
	rand.Read(bits[:]) // never fails, see its documentation
	digits := new(big.Int).SetBytes(bits[:]).Text(62)
	secret := prefix + strings.Repeat("0", secretDigits-len(digits)) + digits
	return secret, sha256.Sum256([]byte(secret))
}

// IsKey reports whether a text has the length and the prefix of a key.
func IsKey(secret string) bool {
	return len(secret) == len(prefixSecret)+secretDigits && strings.HasPrefix(secret, prefixSecret)
}

// hashSecret returns the hash of a secret, false if its prefix or length is wrong. It
// copies to the stack, since converting the string would allocate.
func hashSecret(prefix, secret string) (digest, bool) {
	if len(secret) != len(prefix)+secretDigits || !strings.HasPrefix(secret, prefix) {
		return digest{}, false
	}
	var buf [len(prefixSecret) + secretDigits]byte
	return sha256.Sum256(buf[:copy(buf[:], secret)]), true
}

// maxLabel bounds names chosen by users, in bytes.
const maxLabel = 128

// checkLabel fails unless a name is printable, without leading or trailing blanks.
func checkLabel(what, name string) error {
	switch {
	case name == "":
		return Errorf(ErrInvalid, "the name of the %s is empty", what)
	case len(name) > maxLabel:
		return Errorf(ErrInvalid, "the name of the %s is too long: %d bytes, of at most %d", what, len(name), maxLabel)
	case !text.IsPrintable(name):
		return Errorf(ErrInvalid, "the name of the %s, %q, contains unprintable characters", what, name)
	case strings.TrimSpace(name) != name:
		return Errorf(ErrInvalid, "the name of the %s, %q, begins or ends with a space", what, name)
	}
	return nil
}

// checkName is checkLabel for records that are found by name or id. Their ids begin with prefix.
func checkName(what, prefix, name string) error {
	if err := checkLabel(what, name); err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(name), prefix) {
		return Errorf(ErrInvalid, "the %s name %q begins like an id: choose another name", what, name)
	}
	return nil
}

// checkAccount reports whether s can be the id of an account. A slash would split it
// into another account's id and the beginning of a name.
func checkAccount(s string) bool {
	return s != "" && len(s) <= maxLabel && !strings.Contains(s, "/")
}
