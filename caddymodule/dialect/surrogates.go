package dialect

import (
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// halfPair is the first half of a surrogate pair, a JSON escape, with which the last piece of a
// streamed text ended; "" is none. Servers that escape text may split a pair over two pieces.
type halfPair string

// lone is the decoded form of a half whose other half is missing.
const lone = "\uFFFD"

// unquote decodes the next piece of the text, a JSON string, except for a half at its end.
func (h *halfPair) unquote(raw []byte) string {
	if *h == "" && !jsonscan.EndsInHalf(raw) {
		return jsonscan.Unquote(raw)
	}
	if !jsonscan.IsFilled(raw) {
		return "" // the half waits for the next text
	}
	raw = slices.Concat([]byte{'"'}, []byte(*h), raw[1:])
	*h = ""
	if jsonscan.EndsInHalf(raw) {
		at := len(raw) - len(`\ud83d"`)
		*h = halfPair(raw[at : len(raw)-1])
		raw = append(raw[:at], '"')
	}
	return jsonscan.Unquote(raw)
}

// rest returns the text of a half that remains alone, and resets h.
func (h *halfPair) rest() string {
	if *h == "" {
		return ""
	}
	*h = ""
	return lone
}
