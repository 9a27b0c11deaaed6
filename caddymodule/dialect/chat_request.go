package dialect

import (
	"bytes"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
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

// fieldNames are the fields' keys, fieldTypes their types.
var (
	fieldNames = [fieldCount]string{"model", "stream", "stream_options", "max_tokens", "max_completion_tokens"}
	fieldTypes = [fieldCount]valueType{aString, aBool, anObject, aNumber, aNumber}
)

const includeUsage = "include_usage" // the key of stream_options that the gateway acts on

// place is where a member stands in the body; the zero place is nowhere.
type place struct{ key, value jsonscan.Span }

// found reports whether the member is there.
func (p place) found() bool { return p.value.End != 0 }

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

	retries     retries
	repairIndex string // the deployment's option RepairToolIndex

	// What a deployment's options decide about; few requests have it.
	models    string        // a field that names further models, "" if there is none
	media     []place       // what may hold addresses of media
	developer jsonscan.Span // of the messages, if one of them is the developer's
	folds     edits         // of the developer's messages
}

// ScanRequest reads the body of ChatCompletions, Completions or Embeddings in
// one pass that decodes nothing but keys and the model's name. It checks the
// whole grammar, and refuses keys that the gateway acts on if they come twice
// or in another case: JSON readers differ in which of the two they take, so
// the upstream might act on one that was not checked here. What else the body
// holds is the upstream's affair, bytes that are not UTF-8 too.
func ScanRequest(op Operation, body []byte) (*ChatRequest, *Error) {
	r := &ChatRequest{body: body, kind: op.Kind, Choices: 1}
	m := jsonscan.Object(body)
	if m.Err() != nil {
		return nil, notAnObject(body)
	}
	var content place // of what the operation is about
	for m.Mark = markOf; m.Next(); m.Seen = 0 {
		if err := r.note(&m); err != nil {
			return nil, err
		}
		switch string(m.Name()) {
		case contentField(op.Kind):
			content = place{m.Key, m.Value}
		case "n":
			r.noteChoices(m.Raw())
		}
		if m.Seen != 0 {
			r.noteSeen(&m)
		}
	}
	if !m.Whole() {
		return nil, notJSON(m.Err())
	}
	for f, want := range fieldTypes {
		if raw := r.raw(field(f)); raw != nil && !want.is(raw) {
			return nil, wrongType(fieldNames[f], want.name, raw)
		}
	}
	if r.Model = jsonscan.String(r.raw(fieldModel)); r.Model == "" {
		return nil, missing("model")
	}
	r.Stream = string(r.raw(fieldStream)) == "true"
	if err := r.checkStreamOptions(); err != nil {
		return nil, err
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
	raw := content.value.Of(r.body)
	switch {
	case r.kind == Completions:
		if !jsonscan.IsString(raw) { // several prompts make several choices each
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
	if n, ok := jsonscan.Integer(raw); ok && n > 1 && n < 1<<16 {
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
func (r *ChatRequest) note(m *jsonscan.Members) *Error {
	key := m.Name()
	if len(key) == 0 {
		return nil
	}
	r.noteModels(key, m.Raw())
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
		r.fields[f] = place{m.Key, m.Value}
	}
	return nil
}

// isLike reports whether a key is name in any case, as readers that fold case
// would have it (encoding/json does: "MODEL", and "ſtream" too).
func isLike(key []byte, name string) bool {
	return len(key) >= len(name) && bytes.EqualFold(key, []byte(name))
}

// checkKey refuses a key that is like name but not name, or comes again.
func checkKey(m *jsonscan.Members, name string, before place, param string) *Error {
	if string(m.Name()) != name {
		return invalid(param, "unsupported_parameter", "Unknown parameter %q: did you mean %q?", show(string(m.Name())), name)
	}
	if before.found() {
		return invalid(param, "", "The key %q is duplicated in the request body. Send it once.", param)
	}
	return nil
}

// raw is the value of a field; nil if it is not there or null.
func (r *ChatRequest) raw(f field) []byte {
	p := r.fields[f]
	if raw := p.value.Of(r.body); p.found() && !jsonscan.IsNull(raw) {
		return raw
	}
	return nil
}

// checkStreamOptions reads stream_options.
func (r *ChatRequest) checkStreamOptions() *Error {
	if r.raw(fieldStreamOptions) == nil {
		return nil
	}
	for m := jsonscan.At(r.body, r.fields[fieldStreamOptions].value.Start); m.Next(); {
		r.options = true
		if !isLike(m.Name(), includeUsage) {
			continue
		}
		const param = "stream_options." + includeUsage
		if err := checkKey(&m, includeUsage, r.usage, param); err != nil {
			return err
		}
		if raw := m.Raw(); !jsonscan.IsBool(raw) && !jsonscan.IsNull(raw) {
			return wrongType(param, "a boolean", raw)
		}
		r.usage = place{m.Key, m.Value}
		r.IncludeUsage = m.Raw()[0] == 't'
	}
	return nil
}

// notJSON is the error for a body that cannot be scanned.
func notJSON(err error) *Error {
	return invalid("", "", "The request body is not valid JSON: %v.", err)
}

// notAnObject is the error for a body that is not a JSON object.
func notAnObject(body []byte) *Error {
	value, err := jsonscan.Value(body)
	switch {
	case err != nil:
		return notJSON(err)
	case len(value) == 0:
		return invalid("", "", "The request body is empty; send a JSON object.")
	}
	return invalid("", "invalid_type", "The request body must be a JSON object, not %s.", jsonscan.TypeName(value))
}
