package dialect

import (
	"bytes"
	"strconv"
)

// span is a part of a byte slice: [start, end).
type span struct{ start, end int }

// of returns the bytes of the span.
func (p span) of(data []byte) []byte { return data[p.start:p.end] }

// members walks over the members of an object, or the elements of an array:
//
//	for m := membersOf(data, 0); m.next(); { … }
//
// It checks the whole grammar of what it passes; afterwards m.err() tells
// whether it came to the container's end or to a problem, and m.end is the
// index behind the container.
type members struct {
	scanner
	key   span // with its quotes; not set in an array
	value span
	sep   int // index of the ',' or closing bracket behind the value
	index int // of the member, from 0
	end   int // behind the container, once next has returned false
	close byte
}

// membersOf walks over the container that starts at data[i]. If none starts
// there, the walk ends at once with a problem.
func membersOf(data []byte, i int) members {
	m := members{scanner: scanner{data: data}, index: -1, sep: i}
	switch m.at0(i) {
	case '{':
		m.close = '}'
	case '[':
		m.close = ']'
	default:
		m.fail(i, "expected an object or an array")
	}
	return m
}

// checkedMembers walks over the container that a text is, which is part of
// one that was walked over to its end and so is known to be JSON.
func checkedMembers(text []byte) members {
	m := membersOf(text, 0)
	m.checked = true
	return m
}

// textOf walks over the members of a JSON text that is an object; if it is
// none, the walk ends at once with a problem. whole tells how it went.
func textOf(data []byte) members {
	i := (&scanner{data: data}).space(0)
	m := membersOf(data, i)
	if m.close == ']' {
		m.close = 0
		m.fail(i, "expected an object")
	}
	return m
}

// whole reports whether the walk over a JSON text came to the text's end.
func (m *members) whole() bool {
	if m.problem == "" && m.space(m.end) != len(m.data) {
		m.fail(m.space(m.end), "unexpected text behind the JSON object")
	}
	return m.problem == ""
}

// next finds the next member.
func (m *members) next() bool {
	if m.problem != "" || m.end != 0 {
		return false
	}
	if m.index >= 0 && m.at0(m.sep) == m.close {
		m.end = m.sep + 1
		return false
	}
	i := m.space(m.sep + 1)
	if m.index < 0 && m.at0(i) == m.close {
		m.end = i + 1
		return false
	}
	m.index++
	if m.close == '}' {
		start := i
		if m.at0(i) != '"' {
			m.fail(i, "expected a key in double quotes")
			return false
		}
		if i = m.str(i); i < 0 {
			return false
		}
		m.key = span{start, i}
		if i = m.colon(i); i < 0 {
			return false
		}
	}
	start := i
	if i = m.scanner.value(i, 1); i < 0 {
		return false
	}
	m.value = span{start, i}
	m.sep = m.space(i)
	if c := m.at0(m.sep); c != ',' && c != m.close {
		m.fail(m.sep, "expected ',' or the end of the object or array")
		return false
	}
	return true
}

// name is the member's key, decoded; valid as long as the data is.
func (m *members) name() []byte {
	raw := m.data[m.key.start+1 : m.key.end-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return []byte(unquote(m.key.of(m.data)))
}

// raw is the value's bytes.
func (m *members) raw() []byte { return m.value.of(m.data) }

// unquote decodes a valid JSON string, as encoding/json does: U+FFFD stands
// for lone surrogates and for bytes that are no UTF-8.
func unquote(quoted []byte) string { return unescape(quoted[1 : len(quoted)-1]) }

// plain reports whether a string's bytes are ASCII without escapes.
func plain(raw []byte) bool {
	for _, c := range raw {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// isNull reports whether a value is null; most servers write that for "absent".
func isNull(raw []byte) bool { return string(raw) == "null" }

// isString reports whether a value is a string.
func isString(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }

// isBool reports whether a value is true or false.
func isBool(raw []byte) bool { return len(raw) > 0 && (raw[0] == 't' || raw[0] == 'f') }

// isNumber reports whether a value is a number.
func isNumber(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9')
}

// isFilled reports whether a value is a string, array or object with something
// in it; white space alone counts as nothing in the last two.
func isFilled(raw []byte) bool {
	if len(raw) == 0 || raw[0] != '"' && raw[0] != '[' && raw[0] != '{' {
		return false
	}
	if raw[0] == '"' {
		return len(raw) > 2
	}
	s := scanner{data: raw}
	return s.space(1) != len(raw)-1
}

// integer reads a whole number; ok is false for any other value.
func integer(raw []byte) (n int64, ok bool) {
	if !isNumber(raw) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// typeName is the type of a value, as JSON names it, with its article.
func typeName(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case isString(raw):
		return "a string"
	case isBool(raw):
		return "a boolean"
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}
