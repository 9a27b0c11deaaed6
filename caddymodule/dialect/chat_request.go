package dialect

import (
	"bytes"
	"unicode/utf8"
)

// field is a key of a request body that the gateway acts on.
type field uint8

const (
	fieldModel field = iota
	fieldStream
	fieldStreamOptions
	fieldMaxTokens
	fieldMaxCompletionTokens
	fieldCount
)

// fieldNames are the fields' keys.
var fieldNames = [fieldCount]string{"model", "stream", "stream_options", "max_tokens", "max_completion_tokens"}

const includeUsage = "include_usage" // the key of stream_options that the gateway acts on

// place is where a member stands in the body; the zero place is nowhere.
type place struct{ key, value span }

// found reports whether the member is there.
func (p place) found() bool { return p.value.end != 0 }

// ChatRequest is a scanned request in the chat dialect: what the gateway must
// know of it, and where the few things stand that it changes. It keeps the
// body, whose bytes must not change.
type ChatRequest struct {
	Model        string // the public name that the client asked for
	Stream       bool   // the client wants an event stream
	IncludeUsage bool   // the client wants usage in its stream
	Choices      int    // how many choices the answer may have; 0 is unknown

	body    []byte
	kind    OperationKind
	fields  [fieldCount]place
	usage   place // of stream_options.include_usage
	options bool  // stream_options has members

	repairIndex string    // the deployment's option RepairToolIndex
	rare        *rarities // what few requests have; nil if there is none of it
}

// ScanRequest reads the body of ChatCompletions, Completions or Embeddings in
// one pass that decodes nothing but keys and the model's name. It checks the
// whole grammar, and refuses keys that the gateway acts on if they come twice
// or in another case: JSON readers differ in which of the two they take, so
// the upstream might act on one that was not checked here. What else the body
// holds is the upstream's affair, bytes that are no UTF-8 too.
func ScanRequest(op Operation, body []byte) (*ChatRequest, *Error) {
	r := &ChatRequest{body: body, kind: op.Kind, Choices: 1}
	m := textOf(body)
	if m.close != '}' {
		return nil, notAnObject(&m)
	}
	var content place // of what the operation is about
	for m.watch = true; m.next(); m.seen = 0 {
		if err := r.note(&m); err != nil {
			return nil, err
		}
		switch string(m.name()) {
		case contentField(op.Kind):
			content = place{m.key, m.value}
		case "n":
			r.noteChoices(m.raw())
		}
		if m.seen != 0 {
			r.noteSeen(&m)
		}
	}
	if !m.whole() {
		return nil, invalid("", "", "The request body is not valid JSON: %v.", m.err())
	}
	if err := r.checkModel(); err != nil {
		return nil, err
	}
	if err := r.checkStream(); err != nil {
		return nil, err
	}
	for _, f := range [...]field{fieldMaxTokens, fieldMaxCompletionTokens} {
		if raw := r.raw(f); raw != nil && !isNumber(raw) {
			return nil, wrongType(fieldNames[f], "a number", raw)
		}
	}
	if err := r.checkContent(content); err != nil {
		return nil, err
	}
	return r, nil
}

// contentField is the key of what an operation is about.
func contentField(kind OperationKind) string {
	switch kind {
	case ChatCompletions:
		return "messages"
	case Completions:
		return "prompt"
	}
	return "input"
}

// checkContent refuses a body that lacks what the operation is about: some
// upstreams answer that with 500, which would look like their own fault.
func (r *ChatRequest) checkContent(content place) *Error {
	raw := content.value.of(r.body)
	switch {
	case r.kind == Completions:
		if !isString(raw) { // several prompts make several choices each
			r.Choices = 0
		}
	case !content.found():
		return missing(contentField(r.kind))
	case r.kind == ChatCompletions && raw[0] != '[':
		return wrongType(contentField(r.kind), "an array", raw)
	}
	return nil
}

// noteChoices reads how many choices the client wants.
func (r *ChatRequest) noteChoices(raw []byte) {
	if n, ok := integer(raw); ok && n > 1 && n < 1<<16 {
		r.Choices = int(n)
	}
}

// actsOn reports whether the gateway acts on a field in this operation.
func (r *ChatRequest) actsOn(f field) bool {
	switch r.kind {
	case ChatCompletions:
		return true
	case Completions:
		return f <= fieldStreamOptions
	}
	return f == fieldModel
}

// note keeps the place of a member that the gateway acts on.
func (r *ChatRequest) note(m *members) *Error {
	key := m.name()
	if len(key) == 0 {
		return nil
	}
	r.noteModels(key, m.raw())
	if first := key[0] | 0x20; first != 'm' && first != 's' && first < utf8.RuneSelf {
		return nil // none of fieldNames begins so
	}
	for f, name := range fieldNames {
		f := field(f)
		if !r.actsOn(f) || !isLike(key, name) {
			continue
		}
		if err := checkKey(m, name, r.fields[f], name); err != nil {
			return err
		}
		r.fields[f] = place{m.key, m.value}
	}
	return nil
}

// isLike reports whether a key is name in any case, as readers that fold case
// would have it (encoding/json does: "MODEL", and "ſtream" too).
func isLike(key []byte, name string) bool {
	return len(key) >= len(name) && bytes.EqualFold(key, []byte(name))
}

// checkKey refuses a key that is like name but not name, or comes again.
func checkKey(m *members, name string, before place, param string) *Error {
	if string(m.name()) != name {
		return invalid(param, "unsupported_parameter", "Unknown parameter %q: did you mean %q?", show(string(m.name())), name)
	}
	if before.found() {
		return invalid(param, "", "The key %q comes twice in the request body; send it once.", param)
	}
	return nil
}

// raw is the value of a field; nil if it is not there or null.
func (r *ChatRequest) raw(f field) []byte {
	p := r.fields[f]
	if raw := p.value.of(r.body); p.found() && !isNull(raw) {
		return raw
	}
	return nil
}

// checkModel reads the model's name.
func (r *ChatRequest) checkModel() *Error {
	raw := r.raw(fieldModel)
	if raw == nil {
		return missing("model")
	}
	if !isString(raw) {
		return wrongType("model", "a string", raw)
	}
	if r.Model = unquote(raw); r.Model == "" {
		return missing("model")
	}
	return nil
}

// checkStream reads stream and stream_options.
func (r *ChatRequest) checkStream() *Error {
	if raw := r.raw(fieldStream); raw != nil {
		if !isBool(raw) {
			return wrongType("stream", "a boolean", raw)
		}
		r.Stream = raw[0] == 't'
	}
	raw := r.raw(fieldStreamOptions)
	if raw == nil {
		return nil
	}
	if raw[0] != '{' {
		return wrongType("stream_options", "an object", raw)
	}
	for m := membersOf(r.body, r.fields[fieldStreamOptions].value.start); m.next(); {
		r.options = true
		if !isLike(m.name(), includeUsage) {
			continue
		}
		const param = "stream_options." + includeUsage
		if err := checkKey(&m, includeUsage, r.usage, param); err != nil {
			return err
		}
		if raw := m.raw(); !isBool(raw) && !isNull(raw) {
			return wrongType(param, "a boolean", raw)
		}
		r.usage = place{m.key, m.value}
		r.IncludeUsage = m.raw()[0] == 't'
	}
	return nil
}

// notAnObject says why a body is no JSON object.
func notAnObject(m *members) *Error {
	i := m.space(0)
	if i == len(m.data) {
		return invalid("", "", "The request body is empty; send a JSON object.")
	}
	s := scanner{data: m.data}
	if end := s.value(i, 0); end < 0 || s.space(end) != len(m.data) {
		if end >= 0 {
			s.fail(s.space(end), "unexpected text behind the JSON value")
		}
		return invalid("", "", "The request body is not valid JSON: %v.", s.err())
	}
	return invalid("", "invalid_type", "The request body must be a JSON object, not %s.", typeName(m.data[i:]))
}
