package dialect

import (
	"bytes"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// customInput finds the input of a custom tool's call in the arguments of the
// function that stands for the tool upstream: {"input":"…"}, else the only
// string of an object, else all as it is. Arguments that were cut may lack
// their end.
func customInput(arguments string, cut bool) string {
	const deepest = 4 // strings in strings
	return customInputIn(arguments, cut, deepest)
}

// customInputIn is customInput for arguments that may be a string of the
// arguments, which may be one again, levels times.
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

// soleString finds the string under "input", or the only member if that is a
// string, of an object.
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

// appendShellAction appends the action of a local_shell_call or a shell_call.
// Members that the model got wrong are left out: the client's checks then report
// them.
func appendShellAction(b []byte, kind ToolKind, object []byte) []byte {
	f := readFields(object)
	commands := f.given("commands")
	if command := f.given("command"); len(commands) == 0 || kind == ToolLocalShell && len(command) > 0 {
		commands = command
	}
	if kind == ToolShell {
		b = appendStrings(append(b, `{"commands":`...), commands)
		b = appendIntegerOrNull(append(b, `,"timeout_ms":`...), f.get("timeout_ms"))
		b = appendIntegerOrNull(append(b, `,"max_output_length":`...), f.get("max_output_length"))
		return append(b, '}')
	}
	b = appendStrings(append(b, `{"type":"exec","command":`...), commands)
	b = appendStringMap(append(b, `,"env":`...), f.get("env"))
	b = appendIntegerOrNull(append(b, `,"timeout_ms":`...), f.get("timeout_ms"))
	directory := f.given("workdir")
	if len(directory) == 0 {
		directory = f.get("working_directory")
	}
	b = jsonscan.AppendQuotedOrNull(append(b, `,"working_directory":`...), jsonscan.String(directory))
	return append(b, `,"user":null}`...)
}

// appendPatchOperation appends the operation of an apply_patch_call.
func appendPatchOperation(b, object []byte) []byte {
	f := readFields(object)
	kind := f.text("type")
	if kind == "" {
		kind = "update_file"
	}
	b = jsonscan.AppendQuoted(append(b, `{"type":`...), kind)
	b = jsonscan.AppendQuoted(append(b, `,"path":`...), f.text("path"))
	if kind != "delete_file" {
		b = jsonscan.AppendQuoted(append(b, `,"diff":`...), f.text("diff"))
	}
	return append(b, '}')
}

// appendStrings appends an array of strings, from one that may hold other
// scalars, or from a single string.
func appendStrings(b, raw []byte) []byte {
	b = append(b, '[')
	switch {
	case jsonscan.IsString(raw):
		b = jsonscan.AppendQuoted(b, jsonscan.Unquote(raw))
	case len(raw) > 0 && raw[0] == '[':
		for list := jsonscan.At(raw, 0); list.Next(); {
			if list.Index > 0 {
				b = append(b, ',')
			}
			b = appendText(b, list.Raw())
		}
	}
	return append(b, ']')
}

// appendStringMap appends an object with strings as values.
func appendStringMap(b, raw []byte) []byte {
	b = append(b, '{')
	if len(raw) > 0 && raw[0] == '{' {
		for m := jsonscan.At(raw, 0); m.Next(); {
			if m.Index > 0 {
				b = append(b, ',')
			}
			b = append(jsonscan.AppendQuoted(b, string(m.Name())), ':')
			b = appendText(b, m.Raw())
		}
	}
	return append(b, '}')
}

// appendText appends a value as a string: its own text, or its JSON.
func appendText(b, raw []byte) []byte {
	if jsonscan.IsString(raw) {
		return jsonscan.AppendQuoted(b, jsonscan.Unquote(raw))
	}
	return jsonscan.AppendQuoted(b, string(raw))
}

// appendIntegerOrNull appends a whole number, or null for what is none.
func appendIntegerOrNull(b, raw []byte) []byte {
	if n, ok := jsonscan.Integer(raw); ok {
		return strconv.AppendInt(b, n, 10)
	}
	return append(b, "null"...)
}
