package dialect

import (
	"bytes"
	"cmp"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// customInput returns the input of a custom tool's call from the arguments of the
// upstream's function: the member "input", else the only member if it is a string, else
// the unchanged arguments. If cut is set, the arguments may be truncated.
func customInput(arguments string, cut bool) string {
	const deepest = 4 // strings in strings
	return customInputIn(arguments, cut, deepest)
}

// customInputIn implements customInput. Arguments may be nested in JSON strings, up to
// levels times.
func customInputIn(arguments string, cut bool, levels int) string {
	raw := bytes.TrimSpace([]byte(arguments))
	if input, ok := soleString(raw); ok {
		return input
	}
	if cut {
		for _, end := range [...]string{`"}`, `}`} {
			if input, ok := soleString(append(bytes.Clone(raw), end...)); ok {
				return input
			}
		}
	}
	if levels > 0 && jsonscan.IsString(raw) && jsonscan.Valid(raw) {
		return customInputIn(jsonscan.Unquote(raw), false, levels-1)
	}
	return arguments
}

// soleString returns the string member "input" of an object, or its only member if that
// is a string.
func soleString(raw []byte) (value string, ok bool) {
	var only []byte
	m := jsonscan.Object(raw)
	for m.Next() {
		if string(m.Name()) == "input" && jsonscan.IsString(m.Raw()) {
			value, ok = jsonscan.Unquote(m.Raw()), true
		}
		only = m.Raw()
	}
	if !m.Whole() {
		return "", false
	}
	if !ok && m.Index == 0 && jsonscan.IsString(only) {
		return jsonscan.Unquote(only), true
	}
	return value, ok
}

// appendShellAction appends the action of a local_shell_call or a shell_call. Invalid
// members are omitted, so that the client's validation reports them.
func appendShellAction(b []byte, kind ToolKind, object []byte) []byte {
	f := readFields(object)
	commands := f.given("commands")
	if command := f.given("command"); len(commands) == 0 || kind == ToolLocalShell && len(command) > 0 {
		commands = command
	}
	if kind == ToolShell {
		b = appendStrings(append(b, `{"commands":`...), commands)
		return jsonscan.Appendf(b, `,"timeout_ms":%n,"max_output_length":%n}`, integer(f.get("timeout_ms")),
			integer(f.get("max_output_length")))
	}
	directory := cmp.Or(f.text("workdir"), f.text("working_directory"))
	b = appendStrings(append(b, `{"type":"exec","command":`...), commands)
	b = appendStringMap(append(b, `,"env":`...), f.get("env"))
	return jsonscan.Appendf(b, `,"timeout_ms":%n,"working_directory":%n,"user":null}`, integer(f.get("timeout_ms")),
		directory)
}

// appendPatchOperation appends the operation of an apply_patch_call.
func appendPatchOperation(b, object []byte) []byte {
	f := readFields(object)
	kind := cmp.Or(f.text("type"), "update_file")
	b = jsonscan.Appendf(b, `{"type":%q,"path":%q`, kind, f.text("path"))
	if kind != "delete_file" {
		b = jsonscan.Appendf(b, `,"diff":%q`, f.text("diff"))
	}
	return append(b, '}')
}

// appendStrings appends an array of strings. raw is a string or an array, whose other
// elements are converted to strings.
func appendStrings(b, raw []byte) []byte {
	b = append(b, '[')
	switch {
	case jsonscan.IsString(raw):
		b = jsonscan.AppendQuoted(b, jsonscan.Unquote(raw))
	case jsonscan.IsArray(raw):
		for list := jsonscan.MembersAt(raw, 0); list.Next(); {
			if list.Index > 0 {
				b = append(b, ',')
			}
			b = appendText(b, list.Raw())
		}
	}
	return append(b, ']')
}

// appendStringMap appends an object. Its values are converted to strings.
func appendStringMap(b, raw []byte) []byte {
	b = append(b, '{')
	if jsonscan.IsObject(raw) {
		for m := jsonscan.MembersAt(raw, 0); m.Next(); {
			if m.Index > 0 {
				b = append(b, ',')
			}
			b = append(jsonscan.AppendQuoted(b, string(m.Name())), ':')
			b = appendText(b, m.Raw())
		}
	}
	return append(b, '}')
}

// appendText appends a value as a string. Other values than strings become their JSON.
func appendText(b, raw []byte) []byte {
	if jsonscan.IsString(raw) {
		return jsonscan.AppendQuoted(b, jsonscan.Unquote(raw))
	}
	return jsonscan.AppendQuoted(b, string(raw))
}

// integer returns raw if it is an integer, else nil.
func integer(raw []byte) []byte {
	if _, ok := jsonscan.Integer(raw); ok {
		return raw
	}
	return nil
}
