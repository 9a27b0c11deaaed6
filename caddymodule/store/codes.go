package store

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"strings"
)

// codeAlphabet is Crockford's base32. It omits I, L and O, which are easily misread,
// and U, to avoid words.
const codeAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const (
	prefixCode   = "PAIR-"
	prefixDigits = "PA1R" // the prefix after normalization
	codeDigits   = 8      // of five bits each
)

// newCode returns a pairing code: 40 random bits as PAIR-XXXX-XXXX, short enough to type.
// Guessing is limited by the life of the code and by the caller.
func newCode() string {
	var digits [codeDigits]byte
	rand.Read(digits[:]) // never fails, see its documentation
	for i := range digits {
		digits[i] = codeAlphabet[digits[i]%32]
	}
	return formatCode(string(digits[:]))
}

func formatCode(digits string) string {
	return prefixCode + digits[:codeDigits/2] + "-" + digits[codeDigits/2:]
}

// NormalizeCode returns a typed pairing code as PAIR-XXXX-XXXX. It ignores case, reads O
// as 0 and I and L as 1, and accepts missing or additional blanks and dashes and a
// missing prefix.
func NormalizeCode(s string) (string, bool) {
	if len(s) > 64 {
		return "", false
	}
	var digits []byte
	for _, c := range []byte(s) {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		switch c {
		case '-', ' ', '\t', '\r', '\n':
			continue
		case 'O':
			c = '0'
		case 'I', 'L':
			c = '1'
		}
		if strings.IndexByte(codeAlphabet, c) < 0 {
			return "", false
		}
		digits = append(digits, c)
	}
	if len(digits) == len(prefixDigits)+codeDigits {
		digits = bytes.TrimPrefix(digits, []byte(prefixDigits))
	}
	if len(digits) != codeDigits {
		return "", false
	}
	return formatCode(string(digits)), true
}

// hashCode returns the hash of a typed pairing code.
func hashCode(s string) (digest, bool) {
	code, ok := NormalizeCode(s)
	if !ok {
		return digest{}, false
	}
	return sha256.Sum256([]byte(code)), true
}
