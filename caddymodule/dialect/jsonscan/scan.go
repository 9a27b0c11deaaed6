// Package jsonscan validates JSON and locates its parts without decoding it. Key order,
// number literals and unknown keys are preserved, and nothing is allocated.
//
// [MembersAt] and [Object] iterate over members and check the grammar. [Checked] iterates over
// JSON that was already checked. [Member] and [Text] find one member.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is the maximum nesting depth. Schemas in real requests stay below 30.
// encoding/json allows 10,000, but common upstream parsers recurse and crash earlier.
const MaxDepth = 512

// scanner checks JSON (RFC 8259) and finds the ends of values, without decoding or
// allocating. It accepts the input of encoding/json.Valid up to MaxDepth, including
// invalid UTF-8 in strings.
//
// Its methods take the start index of an element and return the index after it, or -1
// after setting problem and problemAt.
type scanner struct {
	Data      []byte
	checked   bool   // the data is known to be valid JSON
	problemAt int    // index of the problem
	problem   string // the syntax error, or ""

	// Mark, if set, is called for each key within values. rest starts with the
	// key's value. Seen is the union of the returned bits.
	Mark func(key, rest []byte) uint8
	Seen uint8
}

// fail records a problem at i and returns -1.
func (s *scanner) fail(i int, problem string) int {
	if i >= len(s.Data) {
		i, problem = len(s.Data), "unexpected end"
	}
	s.problemAt, s.problem = i, problem
	return -1
}

// Err returns the syntax error, or nil.
func (s *scanner) Err() error {
	if s.problem == "" {
		return nil
	}
	return fmt.Errorf("%s at byte %d", s.problem, s.problemAt)
}

// space skips white space.
func (s *scanner) space(i int) int {
	for i < len(s.Data) {
		switch s.Data[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// value scans the value that starts at i, inside depth open containers.
func (s *scanner) value(i, depth int) int {
	open := s.byteAt(i)
	if open != '{' && open != '[' {
		return s.scalar(i, open)
	}
	if depth == MaxDepth {
		return s.fail(i, "nesting deeper than 512")
	}
	i = s.space(i + 1)
	if s.byteAt(i) == open+2 { // '{'+2 is '}', '['+2 is ']'
		return i + 1
	}
	for {
		if open == '{' {
			if i = s.key(i); i < 0 {
				return -1
			}
		}
		if i = s.value(i, depth+1); i < 0 {
			return -1
		}
		i = s.space(i)
		switch s.byteAt(i) {
		case ',':
			i = s.space(i + 1)
		case open + 2:
			return i + 1
		default:
			return s.fail(i, "expected ',' or the end of the object or array")
		}
	}
}

// byteAt returns the byte at i, or 0 after the end.
func (s *scanner) byteAt(i int) byte {
	if i < len(s.Data) {
		return s.Data[i]
	}
	return 0
}

// key scans a key, the colon and white space, up to the value.
func (s *scanner) key(i int) int {
	if s.byteAt(i) != '"' {
		return s.fail(i, "expected a key in double quotes")
	}
	start := i
	if i = s.str(i); i < 0 {
		return -1
	}
	end := i
	if i = s.colon(i); s.Mark != nil && i >= 0 {
		s.Seen |= s.Mark(s.Data[start+1:end-1], s.Data[i:])
	}
	return i
}

// colon scans the colon and white space between a key and its value.
func (s *scanner) colon(i int) int {
	i = s.space(i)
	if s.byteAt(i) != ':' {
		return s.fail(i, "expected ':' after a key")
	}
	return s.space(i + 1)
}

// scalar scans a scalar value that starts with c.
func (s *scanner) scalar(i int, c byte) int {
	switch c {
	case '"':
		return s.str(i)
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	}
	if c == '-' || '0' <= c && c <= '9' {
		return s.number(i)
	}
	return s.fail(i, "expected a value")
}

// literal scans true, false or null.
func (s *scanner) literal(i int, word string) int {
	for k := range len(word) {
		if s.byteAt(i+k) != word[k] {
			return s.fail(i+k, "expected "+word)
		}
	}
	return i + len(word)
}

// number scans a number (RFC 8259 §6).
func (s *scanner) number(i int) int {
	if s.byteAt(i) == '-' {
		i++
	}
	switch c := s.byteAt(i); {
	case c == '0':
		i++
	case '1' <= c && c <= '9':
		i = s.digits(i)
	default:
		return s.fail(i, "expected a digit")
	}
	if s.byteAt(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return -1
		}
	}
	if c := s.byteAt(i); c == 'e' || c == 'E' {
		i++
		if c := s.byteAt(i); c == '+' || c == '-' {
			i++
		}
		if i = s.digits(i); i < 0 {
			return -1
		}
	}
	return i
}

// digits scans one or more digits.
func (s *scanner) digits(i int) int {
	start := i
	for c := s.byteAt(i); '0' <= c && c <= '9'; c = s.byteAt(i) {
		i++
	}
	if i == start {
		return s.fail(i, "expected a digit")
	}
	return i
}

// str scans the string whose opening quote is at i. Most of a body consists of strings,
// such as prompts and base64 images, so they are scanned eight bytes at a time.
func (s *scanner) str(i int) int {
	data := s.Data
	if s.checked {
		return s.skipString(i)
	}
	for i++; ; {
		// Four independent words at a time first, for instruction-level parallelism.
		for i+32 <= len(data) {
			block := data[i : i+32]
			if special(binary.LittleEndian.Uint64(block))|special(binary.LittleEndian.Uint64(block[8:]))|
				special(binary.LittleEndian.Uint64(block[16:]))|special(binary.LittleEndian.Uint64(block[24:])) != 0 {
				break
			}
			i += 32
		}
		for i+8 <= len(data) {
			if m := special(binary.LittleEndian.Uint64(data[i:])); m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		c := s.byteAt(i)
		switch {
		case c == '"':
			return i + 1
		case c == '\\':
			if i = s.escape(i); i < 0 {
				return -1
			}
		case c < 0x20:
			return s.fail(i, "control character in a string")
		default:
			i++
		}
	}
}

// skipString is str for valid JSON. The string ends at the first quote with an even
// number of preceding backslashes.
func (s *scanner) skipString(i int) int {
	for end := i + 1; ; end++ {
		k := bytes.IndexByte(s.Data[end:], '"')
		if k < 0 {
			return s.fail(len(s.Data), "unexpected end")
		}
		end += k
		escapes := 0
		for s.Data[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end + 1
		}
	}
}

// special finds the bytes of a word that end a run of plain string bytes: '"', '\\' and
// control characters. It sets the high bit of the lowest such byte. Because of borrows,
// higher bits may be set incorrectly.
func special(w uint64) uint64 {
	const ones = 0x0101010101010101
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// highs are the high bits of a word's bytes. They are clear in ASCII.
const highs = 0x8080808080808080

// plainASCII returns the length of the prefix of s that consists of unescaped ASCII.
func plainASCII[T string | []byte](s T) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		if m := special(w) | w&highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// escape scans the escape sequence whose backslash is at i.
func (s *scanner) escape(i int) int {
	switch s.byteAt(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if c := s.byteAt(k) | 0x20; !('0' <= c && c <= '9' && s.byteAt(k) >= '0' || 'a' <= c && c <= 'f') {
				return s.fail(k, "expected a hexadecimal digit")
			}
		}
		return i + 6
	}
	return s.fail(i+1, "unknown escape sequence")
}
