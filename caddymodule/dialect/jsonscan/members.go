package jsonscan

import (
	"bytes"
	"strconv"
)

// Span is a range of a byte slice: [Start, End).
type Span struct{ Start, End int }

// Bytes returns the bytes of the span.
func (p Span) Bytes(data []byte) []byte { return data[p.Start:p.End] }

// Members iterates over the members of an object or the elements of an array:
//
//	for m := MembersAt(data, 0); m.Next(); { … }
//
// It checks the grammar of what it passes. After the iteration, m.Err returns the
// syntax error, if any.
type Members struct {
	scanner
	Key   Span // with its quotes; not set in an array
	Value Span
	Index int // of the member, from 0
	Sep   int // index of the ',' or closing bracket after the value
	end   int // index after the container, once Next has returned false
	close byte
}

// MembersAt iterates over the container that starts at data[i]. If there is none, Err returns
// an error.
func MembersAt(data []byte, i int) Members {
	m := Members{scanner: scanner{Data: data}, Index: -1, Sep: i}
	switch m.byteAt(i) {
	case '{':
		m.close = '}'
	case '[':
		m.close = ']'
	default:
		m.fail(i, "expected an object or an array")
	}
	return m
}

// Checked iterates over a container that is known to be valid JSON, because an
// enclosing text was checked.
func Checked(text []byte) Members { return CheckedAt(text, 0) }

// CheckedAt is like Checked for the container that starts at data[i].
func CheckedAt(data []byte, i int) Members {
	m := MembersAt(data, i)
	m.checked = true
	return m
}

// Object iterates over the members of a JSON text that is an object. If it is not an
// object, Err returns an error. Whole reports whether the text is valid.
func Object(data []byte) Members {
	i := (&scanner{Data: data}).space(0)
	m := MembersAt(data, i)
	if m.close == ']' {
		m.close = 0
		m.fail(i, "expected an object")
	}
	return m
}

// Whole reports whether the iteration reached the end of the JSON text.
func (m *Members) Whole() bool {
	if m.problem == "" && m.space(m.end) != len(m.Data) {
		m.fail(m.space(m.end), "unexpected text after the JSON object")
	}
	return m.problem == ""
}

// Next advances to the next member. It returns false at the end or on an error.
func (m *Members) Next() bool {
	if m.problem != "" || m.end != 0 {
		return false
	}
	if m.Index >= 0 && m.byteAt(m.Sep) == m.close {
		m.end = m.Sep + 1
		return false
	}
	i := m.space(m.Sep + 1)
	if m.Index < 0 && m.byteAt(i) == m.close {
		m.end = i + 1
		return false
	}
	m.Index++
	if m.close == '}' {
		start := i
		if m.byteAt(i) != '"' {
			m.fail(i, "expected a key in double quotes")
			return false
		}
		if i = m.str(i); i < 0 {
			return false
		}
		m.Key = Span{start, i}
		if i = m.colon(i); i < 0 {
			return false
		}
	}
	start := i
	if i = m.scanner.value(i, 1); i < 0 {
		return false
	}
	m.Value = Span{start, i}
	m.Sep = m.space(i)
	if c := m.byteAt(m.Sep); c != ',' && c != m.close {
		m.fail(m.Sep, "expected ',' or the end of the object or array")
		return false
	}
	return true
}

// More reports whether a comma follows the member.
func (m *Members) More() bool { return m.byteAt(m.Sep) == ',' }

// Name returns the decoded key of the member, nil in an array. It is valid as long as
// Data.
func (m *Members) Name() []byte {
	if m.close != '}' {
		return nil
	}
	raw := m.Data[m.Key.Start+1 : m.Key.End-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return []byte(Unquote(m.Key.Bytes(m.Data)))
}

// Raw returns the bytes of the value.
func (m *Members) Raw() []byte { return m.Value.Bytes(m.Data) }

// Unquote decodes a valid JSON string like encoding/json: U+FFFD replaces lone
// surrogates and invalid UTF-8.
func Unquote(quoted []byte) string { return Unescape(quoted[1 : len(quoted)-1]) }

// IsNull reports whether a value is null.
func IsNull(raw []byte) bool { return string(raw) == "null" }

// IsString reports whether a value is a string.
func IsString(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }

// IsBool reports whether a value is true or false.
func IsBool(raw []byte) bool { return len(raw) > 0 && (raw[0] == 't' || raw[0] == 'f') }

// IsNumber reports whether a value is a number.
func IsNumber(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9')
}

// IsObject reports whether a value is an object.
func IsObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }

// IsArray reports whether a value is an array.
func IsArray(raw []byte) bool { return len(raw) > 0 && raw[0] == '[' }

// IsFilled reports whether a value is a non-empty string, array or object.
func IsFilled(raw []byte) bool {
	switch {
	case IsString(raw):
		return len(raw) > 2
	case IsObject(raw), IsArray(raw):
		s := scanner{Data: raw}
		return s.space(1) != len(raw)-1
	}
	return false
}

// Integer parses an integer. ok is false for any other value.
func Integer(raw []byte) (n int64, ok bool) {
	if !IsNumber(raw) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// TypeName returns the JSON type of a value with an article.
func TypeName(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case IsObject(raw):
		return "an object"
	case IsArray(raw):
		return "an array"
	case IsString(raw):
		return "a string"
	case IsBool(raw):
		return "a boolean"
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}

// String decodes a string. It returns "" for any other value.
func String(raw []byte) string {
	if !IsString(raw) {
		return ""
	}
	return Unquote(raw)
}

// Valid reports whether data is one JSON value.
func Valid(data []byte) bool {
	s := scanner{Data: bytes.Trim(data, Space)}
	return s.value(0, 0) == len(s.Data)
}

// Value returns the single JSON value in data without surrounding white space, nil if
// data has only white space.
func Value(data []byte) ([]byte, error) {
	s := scanner{Data: data}
	i := s.space(0)
	if i == len(data) {
		return nil, nil
	}
	end := s.value(i, 0)
	if end >= 0 && s.space(end) != len(data) {
		s.fail(s.space(end), "unexpected text after the JSON value")
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return data[i:end], nil
}

// Space contains the white space characters of JSON.
const Space = " \t\r\n"

// Member returns the value of the last member with this name, nil if there is none. The
// object must be known to be valid JSON.
func Member(object []byte, name string) (last []byte) {
	if !IsObject(object) {
		return nil
	}
	for m := Checked(object); m.Next(); {
		if string(m.Name()) == name {
			last = m.Raw()
		}
	}
	return last
}

// Text returns the decoded value of a string member, or "".
func Text(object []byte, name string) string { return String(Member(object, name)) }
