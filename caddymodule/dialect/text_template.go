package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

const (
	// maxTemplate is the maximum size of a template in bytes. Chunks that only carry a
	// piece of text have a few hundred.
	maxTemplate = 4 << 10
	// maxUnused is the number of templates in a row that no chunk matches, after which
	// none are taken: some servers number their chunks.
	maxUnused = 16
)

// textTemplate is a chunk with one piece of text. It recognizes chunks that differ from
// it only in that text, as most chunks of an answer do: comparing bytes takes a tenth of
// the time of parsing them.
type textTemplate struct {
	head, tail []byte // the chunk before and after the text's quotes
	field      string // the member of the delta that is the text, such as content
	choice     int64  // the choice's index
	unused     int    // templates since the last match
}

// match returns the quoted text of a chunk that matches the template, or nil.
func (t *textTemplate) match(data []byte) []byte {
	end := len(data) - len(t.tail)
	if len(t.head) == 0 || end < len(t.head) || !bytes.HasPrefix(data, t.head) || !bytes.HasSuffix(data, t.tail) {
		return nil
	}
	text := data[len(t.head):end]
	// Valid ignores white space around the text.
	if !jsonscan.IsString(text) || text[len(text)-1] != '"' || !jsonscan.Valid(text) {
		return nil
	}
	t.unused = 0
	return text
}

// take makes a valid chunk the template. It returns false if the chunk has more than one
// piece of text, or anything else that matters to a reader of chunks.
func (t *textTemplate) take(data []byte) bool {
	if t.unused == maxUnused {
		return false
	}
	next := textTemplate{unused: t.unused + 1}
	text, ok := next.findText(data)
	if !ok || len(data)-(text.End-text.Start) > maxTemplate {
		return false
	}
	next.head = append(t.head[:0], data[:text.Start]...)
	next.tail = append(t.tail[:0], data[text.End:]...)
	*t = next
	return true
}

// findText finds the text of a chunk, and sets field and choice.
func (t *textTemplate) findText(data []byte) (text jsonscan.Span, ok bool) {
	choices := -1
	for m := jsonscan.CheckedAt(data, bytes.IndexByte(data, '{')); m.Next(); {
		switch string(m.Name()) {
		case "choices":
			if choices >= 0 || m.Raw()[0] != '[' {
				return text, false
			}
			choices = m.Value.Start
		case "usage":
			if !jsonscan.IsNull(m.Raw()) {
				return text, false
			}
		}
	}
	if choices < 0 {
		return text, false
	}
	list := jsonscan.CheckedAt(data, choices)
	if !list.Next() || list.More() || data[list.Value.Start] != '{' {
		return text, false
	}
	delta := t.findDelta(data, list.Value.Start)
	if delta < 0 {
		return text, false
	}
	return t.findPiece(data, delta)
}

// findDelta finds the delta of the choice at data[i]. It returns -1 if the choice has
// anything else that matters.
func (t *textTemplate) findDelta(data []byte, i int) int {
	delta := -1
	for m := jsonscan.CheckedAt(data, i); m.Next(); {
		raw := m.Raw()
		switch string(m.Name()) {
		case "index":
			index, ok := jsonscan.Integer(raw)
			if !ok { // the readers disagree on it
				return -1
			}
			t.choice = index
		case "delta":
			if delta >= 0 || raw[0] != '{' {
				return -1
			}
			delta = m.Value.Start
		case "message", "text", "finish_reason", "logprobs", "stop_reason", "matched_stop":
			if !jsonscan.IsNull(raw) {
				return -1
			}
		}
	}
	return delta
}

// findPiece finds the only text of the delta at data[i], and sets field.
func (t *textTemplate) findPiece(data []byte, i int) (text jsonscan.Span, ok bool) {
	for m := jsonscan.CheckedAt(data, i); m.Next(); {
		switch name := string(m.Name()); name {
		case "content", "reasoning_content", "reasoning", "thinking":
			if jsonscan.IsNull(m.Raw()) && name != t.field {
				continue
			}
			if ok || !jsonscan.IsString(m.Raw()) {
				return text, false
			}
			text, ok, t.field = m.Value, true, name
		case "refusal", "tool_calls":
			if jsonscan.IsFilled(m.Raw()) {
				return text, false
			}
		case "function_call": // even an empty object is a call
			if !jsonscan.IsNull(m.Raw()) {
				return text, false
			}
		}
	}
	return text, ok
}
