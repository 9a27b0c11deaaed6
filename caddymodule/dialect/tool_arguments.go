package dialect

import (
	"bytes"
	"encoding/json"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// normalArguments makes the JSON object that a call's arguments are to be of
// what the model wrote. Nothing, white space and null are no arguments, a
// string may hold the object, and all else is shown to the tool: its check
// of the arguments then informs the model. ok is false in that last case.
func normalArguments(text string) (object []byte, ok bool) {
	raw := bytes.TrimSpace([]byte(text))
	if len(raw) == 0 || jsonscan.IsNull(raw) {
		return []byte("{}"), true
	}
	if jsonscan.IsString(raw) && jsonscan.Valid(raw) {
		raw = bytes.TrimSpace([]byte(jsonscan.Unquote(raw)))
	}
	if len(raw) > 0 && raw[0] == '{' && jsonscan.Valid(raw) {
		return oneLine(raw), true
	}
	return append(jsonscan.AppendQuoted([]byte(`{"raw_arguments":`), text), '}'), false
}

// oneLine is valid JSON without line ends between its tokens, which would end
// the line of an event.
func oneLine(raw []byte) []byte {
	if !bytes.ContainsAny(raw, "\r\n") {
		return raw
	}
	return compactJSON(raw)
}

// compactJSON is valid JSON without white space between its tokens.
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
