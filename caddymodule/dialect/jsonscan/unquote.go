package jsonscan

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Unescape decodes a valid JSON string without its quotes. Only the result is
// allocated.
func Unescape(raw []byte) string {
	if plainASCII(raw) == len(raw) {
		return string(raw)
	}
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '\\':
			i = unescapeOne(&b, raw, i)
		case c < utf8.RuneSelf:
			b.WriteByte(c)
			i++
		default:
			r, n := utf8.DecodeRune(raw[i:])
			b.WriteRune(r)
			i += n
		}
	}
	return b.String()
}

// unescapeOne decodes the escape sequence at raw[i], or two for a surrogate pair. It
// returns the index after them.
func unescapeOne(b *strings.Builder, raw []byte, i int) int {
	c := raw[i+1]
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r := hexRune(raw[i+2 : i+6])
		i += 6
		if utf16.IsSurrogate(r) && i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
			if pair := utf16.DecodeRune(r, hexRune(raw[i+2:i+6])); pair != utf8.RuneError {
				b.WriteRune(pair)
				return i + 6
			}
		}
		b.WriteRune(r) // U+FFFD for a lone surrogate
		return i
	}
	b.WriteByte(c)
	return i + 2
}

// hexRune parses the four digits of a \u escape sequence.
func hexRune(digits []byte) (r rune) {
	for _, c := range digits {
		r <<= 4
		switch {
		case c <= '9':
			r |= rune(c - '0')
		default:
			r |= rune(c|0x20-'a') + 10
		}
	}
	return r
}

// EndsInHalf reports whether a valid JSON string ends in the escaped first half of a surrogate
// pair.
func EndsInHalf(quoted []byte) bool {
	at := len(quoted) - len(`\ud83d"`)
	if at < 1 || quoted[at] != '\\' || quoted[at+1] != 'u' {
		return false
	}
	if r := hexRune(quoted[at+2 : at+6]); r < 0xd800 || r > 0xdbff {
		return false
	}
	before := at
	for quoted[before-1] == '\\' {
		before--
	}
	return (at-before)%2 == 0 // the backslash is not escaped itself
}
