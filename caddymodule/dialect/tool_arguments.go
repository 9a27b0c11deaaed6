package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// normalArguments makes the JSON object that a call's arguments are to be of
// what the model wrote. Nothing, white space and null are no arguments, a
// string may hold the object, and all else is shown to the tool, whose check
// of its arguments then tells the model. ok is false in that last case.
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
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	return compactJSON(raw)
}
