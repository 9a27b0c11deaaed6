package dialect

import (
	"bytes"
	"strconv"
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
	if levels > 0 && isString(raw) && isJSON(raw) {
		return customInputIn(unquote(raw), false, levels-1)
	}
	return arguments
}

// soleString finds the string under "input", or the only member if that is a
// string, of an object.
func soleString(raw []byte) (value string, ok bool) {
	var only []byte
	m := textOf(raw)
	for m.next() {
		if string(m.name()) == "input" && isString(m.raw()) {
			value, ok = unquote(m.raw()), true
		}
		only = m.raw()
	}
	if !m.whole() {
		return "", false
	}
	if !ok && m.index == 0 && isString(only) {
		return unquote(only), true
	}
	return value, ok
}

// appendShellAction appends the action of a local_shell_call or a shell_call.
// What the model did not give as it should is left out: the client's checks
// then tell it.
func appendShellAction(b []byte, kind ToolKind, object []byte) []byte {
	fields := fieldsOf(object, "command", "commands", "env", "timeout_ms", "workdir", "working_directory", "max_output_length")
	command, commands := fields[0], fields[1]
	if len(commands) == 0 || kind == ToolLocalShell && len(command) > 0 {
		commands = command
	}
	if kind == ToolShell {
		b = appendStrings(append(b, `{"commands":`...), commands)
		b = appendIntegerOrNull(append(b, `,"timeout_ms":`...), fields[3])
		b = appendIntegerOrNull(append(b, `,"max_output_length":`...), fields[6])
		return append(b, '}')
	}
	b = appendStrings(append(b, `{"type":"exec","command":`...), commands)
	b = appendStringMap(append(b, `,"env":`...), fields[2])
	b = appendIntegerOrNull(append(b, `,"timeout_ms":`...), fields[3])
	directory := fields[4]
	if len(directory) == 0 {
		directory = fields[5]
	}
	b = appendQuotedOrNull(append(b, `,"working_directory":`...), stringOf(directory))
	return append(b, `,"user":null}`...)
}

// appendPatchOperation appends the operation of an apply_patch_call.
func appendPatchOperation(b, object []byte) []byte {
	fields := fieldsOf(object, "type", "path", "diff")
	kind := stringOf(fields[0])
	if kind == "" {
		kind = "update_file"
	}
	b = appendQuoted(append(b, `{"type":`...), kind)
	b = appendQuoted(append(b, `,"path":`...), stringOf(fields[1]))
	if kind != "delete_file" {
		b = appendQuoted(append(b, `,"diff":`...), stringOf(fields[2]))
	}
	return append(b, '}')
}

// fieldsOf finds members of an object; nil for one that is not there or null.
func fieldsOf(object []byte, names ...string) [][]byte {
	fields := make([][]byte, len(names))
	for m := membersOf(object, 0); m.next(); {
		for i, name := range names {
			if string(m.name()) == name && !isNull(m.raw()) {
				fields[i] = m.raw()
			}
		}
	}
	return fields
}

// appendStrings appends an array of strings: of one that may hold other
// scalars, or of a single string.
func appendStrings(b, raw []byte) []byte {
	b = append(b, '[')
	switch {
	case isString(raw):
		b = appendQuoted(b, unquote(raw))
	case len(raw) > 0 && raw[0] == '[':
		for list := membersOf(raw, 0); list.next(); {
			if list.index > 0 {
				b = append(b, ',')
			}
			b = appendText(b, list.raw())
		}
	}
	return append(b, ']')
}

// appendStringMap appends an object whose values are strings.
func appendStringMap(b, raw []byte) []byte {
	b = append(b, '{')
	if len(raw) > 0 && raw[0] == '{' {
		for m := membersOf(raw, 0); m.next(); {
			if m.index > 0 {
				b = append(b, ',')
			}
			b = append(appendQuoted(b, string(m.name())), ':')
			b = appendText(b, m.raw())
		}
	}
	return append(b, '}')
}

// appendText appends a value as a string: its own text, or its JSON.
func appendText(b, raw []byte) []byte {
	if isString(raw) {
		return appendQuoted(b, unquote(raw))
	}
	return appendQuoted(b, string(raw))
}

// appendIntegerOrNull appends a whole number, or null for what is none.
func appendIntegerOrNull(b, raw []byte) []byte {
	if n, ok := integer(raw); ok {
		return strconv.AppendInt(b, n, 10)
	}
	return append(b, "null"...)
}
