package tokens

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The kinds of runes that o200k's regular expression distinguishes.
const (
	upperCase    = 1 << iota // Lu, Lt, Lm, Lo, M
	lowerCase                // Ll, Lm, Lo, M
	alphanumeric             // L, N
	number                   // N
	space                    // White_Space
	newline                  // CR, LF
)

// asciiKinds are the kinds of ASCII characters.
var asciiKinds = func() (kinds [utf8.RuneSelf]uint8) {
	for r := range kinds {
		kinds[r] = kindOf(rune(r))
	}
	return kinds
}()

// kind returns the kind and the length of the first rune of s, 0 for both if s is empty.
func kind(s string) (uint8, int) {
	if len(s) > 0 && s[0] < utf8.RuneSelf {
		return asciiKinds[s[0]], 1
	}
	r, n := utf8.DecodeRuneInString(s)
	return kindOf(r), n
}

func kindOf(r rune) uint8 {
	switch {
	case unicode.IsUpper(r), unicode.IsTitle(r):
		return alphanumeric | upperCase
	case unicode.IsLower(r):
		return alphanumeric | lowerCase
	case unicode.IsLetter(r):
		return alphanumeric | upperCase | lowerCase
	case unicode.IsMark(r):
		return upperCase | lowerCase
	case unicode.IsNumber(r):
		return alphanumeric | number
	case r == '\r', r == '\n':
		return space | newline
	case unicode.IsSpace(r):
		return space
	}
	return 0
}

// run returns the length of the first runes of s that are of these kinds, at most limit
// runes.
func run(s string, kinds uint8, limit int) (n int) {
	for ; limit > 0; limit-- {
		k, size := kind(s[n:])
		if k&kinds == 0 || size == 0 {
			break
		}
		n += size
	}
	return n
}

// nextPiece returns the length of the first piece of s, which must not be empty. It is
// equivalent to o200k's regular expression:
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|\p{N}{1,3}
//	| ?[^\s\p{L}\p{N}]+[\r\n/]*
//	|\s*[\r\n]+
//	|\s+(?!\S)
//	|\s+
func nextPiece(s string) int {
	if n := word(s); n > 0 {
		return n + contraction(s[n:])
	}
	if n := run(s, number, 3); n > 0 {
		return n
	}
	if n := signs(s); n > 0 {
		return n
	}
	return whiteSpace(s)
}

// word returns the length of the word at the start of s, possibly after another character.
func word(s string) int {
	prefix := 0
	if k, size := kind(s); k&(alphanumeric|newline) == 0 {
		prefix = size
	}
	if n := mixed(s[prefix:]); n > 0 {
		return prefix + n
	}
	if n := mixed(s); n > 0 {
		return n
	}
	if n := run(s[prefix:], upperCase, len(s)); n > 0 {
		return prefix + n
	}
	return run(s, upperCase, len(s))
}

// mixed returns the length of the word at the start of s: upper case, as far as possible,
// then at least one rune that is lower case or of no case.
func mixed(s string) int {
	caseless := 0 // end of the last rune that is both
	for n := 0; ; {
		k, size := kind(s[n:])
		switch {
		case k&(upperCase|lowerCase) == lowerCase:
			return n + run(s[n:], lowerCase, len(s))
		case k&upperCase == 0:
			return caseless
		}
		n += size
		if k&lowerCase != 0 {
			caseless = n
		}
	}
}

// contraction returns the length of an English contraction at the start of s.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	if strings.HasPrefix(s[1:], "ſ") { // folds to s
		return 1 + len("ſ")
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && s[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && s[2]|0x20 == 'l' {
			return 3
		}
	}
	return 0
}

// signs returns the length of the punctuation at the start of s.
func signs(s string) int {
	n := 0
	if s[0] == ' ' {
		n = 1
	}
	start := n
	for n < len(s) {
		k, size := kind(s[n:])
		if k&(alphanumeric|space) != 0 {
			break
		}
		n += size
	}
	if n == start {
		return 0
	}
	for n < len(s) && (s[n] == '\r' || s[n] == '\n' || s[n] == '/') {
		n++
	}
	return n
}

// whiteSpace returns the length of the white space at the start of s: up to its last
// newline, else without its last character if that can belong to a word.
func whiteSpace(s string) int {
	n, last, lines := 0, 0, 0
	for n < len(s) {
		k, size := kind(s[n:])
		if k&space == 0 {
			break
		}
		last = n
		if n += size; k&newline != 0 {
			lines = n
		}
	}
	switch {
	case lines > 0:
		return lines
	case n < len(s) && last > 0:
		return last
	}
	return n
}
