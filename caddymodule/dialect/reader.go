package dialect

import (
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// maxElements is the maximum number of messages, input items, content blocks, tools and
// calls of a request. Each costs much more than its size, here and in the model server.
const maxElements = 100_000

// checkEvery is the number of elements between two checks of the request's context.
const checkEvery = 256

// step is an element of a path in a request: a member, and its index if it is a list.
type step struct {
	name  string
	index int // -1 if it is not a list
}

// fieldPath returns the path of a field of the current object for errors. If name is empty, it
// returns the path of the object.
func (t *translation) fieldPath(name string) string {
	path := ""
	for _, s := range t.path {
		path = dotted(path, s.name)
		if s.index >= 0 {
			path = t.dialect.format().element(path, s.index)
		}
	}
	return dotted(path, name)
}

// dotted appends a member to a path.
func dotted(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// element appends an index to a path.
func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// dottedElement appends an index to a path, as a member.
func dottedElement(path string, i int) string { return dotted(path, strconv.Itoa(i)) }

// fail records the first error of the request, like bufio.Scanner. Anything read after
// it is ignored.
func (t *translation) fail(e *Error) {
	switch {
	case t.lenient:
		t.faulty = true
	case t.err == nil:
		t.err = e
	}
}

// fault fails with an error for a field of the current object.
func (t *translation) fault(name, format string, args ...any) {
	t.fail(fieldError(t.dialect.format().field, t.fieldPath(name), "", format, args...))
}

// badValue fails with an error for an invalid value.
func (t *translation) badValue(name, format string, args ...any) {
	t.fail(fieldError(t.dialect.format().value, t.fieldPath(name), "", format, args...))
}

// fieldError is the error for the field with a path. %s in lead stands for the path.
func fieldError(lead, path, code, format string, args ...any) *Error {
	e := invalid(path, code, format, args...)
	e.lead(strings.Replace(lead, "%s", path, 1))
	return e
}

// wrongType fails with an error for a value of the wrong type.
func (t *translation) wrongType(name, want string, raw []byte) {
	t.fail(t.dialect.format().wrongType(t.fieldPath(name), want, raw))
}

// missing fails with an error for a missing required field.
func (t *translation) missing(name string) { t.fail(t.dialect.format().missing(t.fieldPath(name))) }

// valueType is the required type of a field, with its name for errors.
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
	anObject     = valueType{"an object", jsonscan.IsObject}
	anArray      = valueType{"an array", jsonscan.IsArray}
	aList        = valueType{"a list", jsonscan.IsArray} // in the messages dialect
)

// typed returns the value of a field, nil if it is absent or null. It fails if the type
// is wrong. The name of an inner field is prefixed with the path of its object.
func (t *translation) typed(f fieldList, name string, want valueType) []byte {
	raw := f.given(name[strings.LastIndexByte(name, '.')+1:])
	if raw != nil && !want.is(raw) {
		t.wrongType(name, want.name, raw)
		return nil
	}
	return raw
}

// boolean returns the value of a boolean field, false if it is absent.
func (t *translation) boolean(f fieldList, name string) bool {
	raw := t.typed(f, name, aBool)
	return raw != nil && raw[0] == 't'
}

// count counts an element. It reports whether to continue.
func (t *translation) count() bool {
	t.elements++
	switch {
	case t.err != nil:
	case t.elements > maxElements:
		t.err = tooManyElements()
	case t.elements%checkEvery == 0 && t.env.ended():
		t.err = abandoned()
	}
	return t.err == nil
}

// objects iterates over a list of objects, which count as elements:
//
//	for list := t.objects(f, "content"); list.next(); {
//		… list.fields …
//	}
//
// The iteration must be completed. The fields are valid until the next object.
type objects struct {
	jsonscan.Members
	t      *translation
	fields fieldList
}

// objects returns an iterator over a field that is a list or absent.
func (t *translation) objects(f fieldList, name string) objects {
	t.path = append(t.path, step{name: name})
	return objects{Members: jsonscan.Checked(f.get(name)), t: t}
}

// next advances to the next object.
func (l *objects) next() bool {
	t := l.t
	last := len(t.path) - 1
	for t.err == nil && l.Next() && t.count() {
		t.path[last].index = l.Index
		if raw := l.Raw(); jsonscan.IsObject(raw) {
			l.fields = appendFields(l.fields, raw)
			return true
		}
		t.wrongType("", anObject.name, l.Raw())
	}
	t.path = t.path[:last]
	return false
}

// readContent reads content: a string, or a list of objects that read converts to parts.
func (t *translation) readContent(f fieldList, name, want string,
	read func(fieldList) contentPart,
) (parts []contentPart) {
	switch content := f.given(name); {
	case content == nil:
	case jsonscan.IsString(content):
		return []contentPart{{text: jsonscan.Unquote(content)}}
	case jsonscan.IsArray(content):
		for list := t.objects(f, name); list.next(); {
			parts = append(parts, read(list.fields))
		}
	default:
		t.wrongType(name, want, content)
	}
	return parts
}

// tooManyElements is the error for a request with more than maxElements.
func tooManyElements() *Error {
	return invalid("", "too_many_elements",
		"The request has more than 100,000 messages, input items, content blocks, tools and tool calls in total. Send "+
			"fewer: shorten or summarize the conversation, or split the request.")
}

// abandoned is the error of a canceled request. It is not sent.
func abandoned() *Error {
	return &Error{Kind: KindTimeout, Message: "The request ended before it was read."}
}
