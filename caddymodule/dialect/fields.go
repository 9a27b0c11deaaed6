package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// fieldList is those members of an object that a request can mean something
// by, the last one of each name, as with most JSON readers.
type fieldList []fieldOf

// fieldOf is one member.
type fieldOf struct {
	name string
	raw  []byte
}

// knownFields is every name that is looked up in a fieldList. Members of other
// names are not kept, so that a list is short however long its object is.
var knownFields = func() map[string]string {
	known := make(map[string]string)
	for _, name := range [...]string{
		// requests
		"background", "conversation", "frequency_penalty", "include", "input", "instructions", "max_output_tokens", "max_tokens",
		"max_tool_calls", "mcp_servers", "messages", "metadata", "model", "output_config", "output_format", "parallel_tool_calls",
		"presence_penalty", "previous_response_id", "prompt", "prompt_cache_key", "reasoning", "safety_identifier", "stop_sequences",
		"store", "stream", "system", "temperature", "text", "thinking", "thread", "tool_choice", "tools", "top_k", "top_logprobs",
		"top_p", "truncation",
		// messages, items and their content
		"action", "arguments", "call_id", "content", "data", "detail", "encrypted_content", "file_data", "file_id", "file_url", "filename",
		"id", "image_url", "input_audio", "is_error", "media_type", "name", "namespace", "operation", "output", "refusal", "role",
		"signature", "source", "status", "summary", "title", "tool_name", "tool_use_id", "type", "url",
		// tools, and what else is an object
		"budget_tokens", "description", "disable_parallel_tool_use", "display", "effort", "format", "function", "input_schema", "mode",
		"parameters", "schema", "strict", "definition", "syntax",
		// arguments of calls, probabilities
		"command", "commands", "diff", "env", "max_output_length", "path", "timeout_ms", "workdir", "working_directory",
		"bytes", "logprob", "token",
	} {
		known[name] = name
	}
	return known
}()

// readFields reads an object that was checked before.
func readFields(object []byte) fieldList { return appendFields(nil, object) }

// appendFields reads an object into a list that is empty, or used no longer.
func appendFields(f fieldList, object []byte) fieldList {
	f = f[:0]
	for m := jsonscan.Checked(object); m.Next(); {
		f.note(&m)
	}
	return f
}

// note keeps a member if its name is known.
func (f *fieldList) note(m *jsonscan.Members) {
	name, ok := knownFields[string(m.Name())]
	if !ok {
		return
	}
	for i := range *f {
		if field := &(*f)[i]; field.name == name {
			field.raw = m.Raw()
			return
		}
	}
	if *f == nil {
		*f = make(fieldList, 0, 4)
	}
	*f = append(*f, fieldOf{name, m.Raw()})
}

// get is a field's value, nil if it is absent.
func (f fieldList) get(name string) []byte {
	for i := range f {
		if f[i].name == name {
			return f[i].raw
		}
	}
	if _, ok := knownFields[name]; !ok {
		panic("dialect: " + name + " is missing in knownFields")
	}
	return nil
}

// text is a field that is a string, "" if it is not there.
func (f fieldList) text(name string) string { return jsonscan.String(f.get(name)) }

// given is a field's value, nil if it is absent or null.
func given(f fieldList, name string) []byte {
	if raw := f.get(name); len(raw) > 0 && !jsonscan.IsNull(raw) {
		return raw
	}
	return nil
}

// withMembers is an object with members added that it lacks: pairs of a name
// and its JSON.
func withMembers(object []byte, pairs ...string) []byte {
	f := readFields(object)
	b := append(make([]byte, 0, len(object)+64), '{')
	comma := func() {
		if len(b) > 1 {
			b = append(b, ',')
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if f.get(pairs[i]) == nil {
			comma()
			b = append(append(jsonscan.AppendQuoted(b, pairs[i]), ':'), pairs[i+1]...)
		}
	}
	for m := jsonscan.Checked(object); m.Next(); {
		comma()
		b = append(append(append(b, m.Key.Of(object)...), ':'), m.Raw()...)
	}
	return append(b, '}')
}

// valueType is a type that a field must have, as errors name it.
type valueType struct {
	name string
	is   func(raw []byte) bool
}

// The types of fields.
var (
	aString      = valueType{"a string", jsonscan.IsString}
	aBool        = valueType{"a boolean", jsonscan.IsBool}
	aNumber      = valueType{"a number", jsonscan.IsNumber}
	aWholeNumber = valueType{"a whole number", func(raw []byte) bool { _, ok := jsonscan.Integer(raw); return ok }}
	anObject     = valueType{"an object", func(raw []byte) bool { return raw[0] == '{' }}
	anArray      = valueType{"an array", func(raw []byte) bool { return raw[0] == '[' }}
)

// typed returns a field that has a type, nil if it is absent or null. path is the
// field's, for errors.
func (t *translation) typed(f fieldList, name, path string, want valueType) ([]byte, *Error) {
	raw := given(f, name)
	if raw != nil && !want.is(raw) {
		return nil, t.wrongType(path, want.name, raw)
	}
	return raw, nil
}

// boolean returns a field that is true or false, false if it is absent.
func (t *translation) boolean(f fieldList, name string) (bool, *Error) {
	raw, err := t.typed(f, name, name, aBool)
	return raw != nil && raw[0] == 't', err
}

// wrongType is the error for a field of another type, in the style of the API.
func (t *translation) wrongType(path, want string, raw []byte) *Error {
	if t.dialect != Messages {
		return wrongType(path, want, raw)
	}
	if want == anArray.name {
		want = "a list"
	}
	return at(path, "Input should be %s, not %s", want, jsonscan.TypeName(raw))
}

// missing is the error for a field that is required, in the style of the API.
func (t *translation) missing(path string) *Error {
	if t.dialect != Messages {
		return missing(path)
	}
	return at(path, "Field required")
}

// objects walks over a list of objects, each of which counts as an element:
//
//	for list := t.objects(raw); list.next(path, &err); { … }
type objects struct {
	jsonscan.Members
	t *translation
}

// objects returns a walk over a list.
func (t *translation) objects(list []byte) objects { return objects{jsonscan.Checked(list), t} }

// next finds the next object of the list at a path, unless there is an error.
func (o *objects) next(path *fieldPath, err **Error) bool {
	if *err != nil || !o.Next() {
		return false
	}
	if *err = o.t.elements.add(); *err == nil && o.Raw()[0] != '{' {
		here := path.element(o.Index)
		*err = o.t.wrongType(here.String(), anObject.name, o.Raw())
	}
	return *err == nil
}
