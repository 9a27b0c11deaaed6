package store

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"strings"
)

// codeAlphabet is Crockford's base32: no I, L, O and U, which are misread or
// make words.
const codeAlphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const (
	prefixCode   = "PAIR-"
	prefixDigits = "PA1R" // how the prefix reads as digits
	codeDigits   = 8      // of five bits
)

// newCode returns a claim code: 40 random bits as PAIR-XXXX-XXXX. That is few
// enough to type; guessing is bounded by the life of the code, and by the
// caller.
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

// NormalizeCode returns a claim code as PAIR-XXXX-XXXX from what a person typed, in
// any case: O is read as 0, I and L as 1, and blanks, dashes and the prefix may be
// missing or more.
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

// hashCode returns the hash of a claim code, however it is typed.
func hashCode(s string) (digest, bool) {
	code, ok := NormalizeCode(s)
	if !ok {
		return digest{}, false
	}
	return sha256.Sum256([]byte(code)), true
}
