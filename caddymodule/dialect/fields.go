package dialect

import (
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// fieldList is the members of an object that a request can mean something by,
// the last one of each name, as with most JSON readers.
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
func (f fieldList) given(name string) []byte {
	if raw := f.get(name); len(raw) > 0 && !jsonscan.IsNull(raw) {
		return raw
	}
	return nil
}

// inner is the fields of an object that a field is; false if the field is absent
// or something else.
func (f fieldList) inner(name string) (fieldList, bool) {
	raw := f.given(name)
	if raw == nil || raw[0] != '{' {
		return nil, false
	}
	return readFields(raw), true
}

// withMembers is an object with members in front that it lacks, or has as null or
// an empty string: pairs of a name and its JSON.
func withMembers(object []byte, pairs ...string) []byte {
	b := []byte{'{'}
	var added []string
	for i := 0; i < len(pairs); i += 2 {
		if raw := jsonscan.Member(object, pairs[i]); len(raw) == 0 || jsonscan.IsNull(raw) || string(raw) == `""` {
			b = append(append(append(jsonscan.AppendQuoted(b, pairs[i]), ':'), pairs[i+1]...), ',')
			added = append(added, pairs[i])
		}
	}
	if added == nil {
		return object
	}
	b = slices.Grow(b, len(object))
	for m := jsonscan.Checked(object); m.Next(); {
		if !slices.Contains(added, string(m.Name())) {
			b = append(append(append(b, m.Key.Of(object)...), ':'), m.Raw()...)
			b = append(b, ',')
		}
	}
	b[len(b)-1] = '}'
	return b
}
