package dialect

import (
	"bytes"
	"encoding/json"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// argumentsEnd finds the end of a call's arguments, which arrive in pieces. It counts brackets
// outside of strings and does not check what is between them. The zero value is ready to use.
type argumentsEnd struct {
	depth    int
	inString bool
	inEscape bool
	reached  bool // an object, array or string has ended
}

// add consumes the next piece.
func (a *argumentsEnd) add(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case a.inEscape:
			a.inEscape = false
		case a.inString && c == '\\':
			a.inEscape = true
		case c == '"':
			a.inString = !a.inString
			a.reached = a.reached || !a.inString && a.depth == 0
		case a.inString:
		case c == '{', c == '[':
			a.depth++
		case c == '}', c == ']':
			a.depth--
			a.reached = a.reached || a.depth == 0
		}
	}
}

// normalArguments converts a call's arguments to a JSON object. White space and null become
// an empty object. A string may contain the object. For any other text, ok is false and the
// object has it in raw_arguments, so that the tool's validation rejects it.
func normalArguments(text string) (object []byte, ok bool) {
	raw := bytes.TrimSpace([]byte(text))
	if len(raw) == 0 || jsonscan.IsNull(raw) {
		return []byte("{}"), true
	}
	if jsonscan.IsString(raw) && jsonscan.Valid(raw) {
		raw = bytes.TrimSpace([]byte(jsonscan.Unquote(raw)))
	}
	if jsonscan.IsObject(raw) && jsonscan.Valid(raw) {
		return oneLine(raw), true
	}
	return append(jsonscan.AppendQuoted([]byte(`{"raw_arguments":`), text), '}'), false
}

// oneLine removes line breaks from valid JSON, as they would end the line of an event.
func oneLine(raw []byte) []byte {
	if !bytes.ContainsAny(raw, "\r\n") {
		return raw
	}
	return compactJSON(raw)
}

// compactJSON removes white space between the tokens of valid JSON.
func compactJSON(raw []byte) []byte {
	if !bytes.ContainsAny(raw, jsonscan.Space) {
		return raw
	}
	var b bytes.Buffer
	b.Grow(len(raw))
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}
