package dialect

import (
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// maxElements bounds what one request may hold: messages, input items, blocks
// of content, tools and calls together. Each costs much more than its few
// bytes, here and in the model server.
const maxElements = 100_000

// checkEvery is how many elements are read between two looks at whether the
// client is still there.
const checkEvery = 256

// step is a step of a path in a request: a member, and the element of it if it is
// a list.
type step struct {
	name  string
	index int // -1: it is not a list
}

// at is the path of a field of the object that is read, as errors show it; of the
// object itself if name is empty.
func (t *translation) at(name string) string {
	path := ""
	for _, s := range t.path {
		path = dotted(path, s.name)
		switch {
		case s.index < 0:
		case t.dialect == Messages:
			path = dotted(path, strconv.Itoa(s.index))
		default:
			path = element(path, s.index)
		}
	}
	return dotted(path, name)
}

// dotted is the path of a member of what stands at a path.
func dotted(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// element is the path of an array's element, as errors show it.
func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// fail ends the request with an error: the first one stays, as of a bufio.Scanner,
// and nothing that is read afterwards counts.
func (t *translation) fail(e *Error) {
	switch {
	case t.lenient:
		t.faulty = true
	case t.err == nil:
		t.err = e
	}
}

// fault is the error for a field of the object that is read, as the errors below.
func (t *translation) fault(name, format string, args ...any) {
	path := t.at(name)
	e := invalid(path, "", format, args...)
	if t.dialect == Messages {
		e.Message = path + ": " + e.Message
	}
	t.fail(e)
}

// badValue is the error for a value that is not allowed.
func (t *translation) badValue(name, format string, args ...any) {
	path := t.at(name)
	e := invalid(path, "", format, args...)
	if t.dialect != Messages {
		path = "Invalid value for " + path
	}
	e.Message = path + ": " + e.Message
	t.fail(e)
}

// wrongType is the error for a value of another type.
func (t *translation) wrongType(name, want string, raw []byte) {
	if t.dialect == Messages {
		t.fault(name, "Input should be %s, not %s", want, jsonscan.TypeName(raw))
		return
	}
	t.fail(wrongType(t.at(name), want, raw))
}

// missing is the error for a field that is required.
func (t *translation) missing(name string) {
	if t.dialect == Messages {
		t.fault(name, "Field required")
		return
	}
	t.fail(missing(t.at(name)))
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
	aList        = valueType{"a list", anArray.is} // as the messages dialect names it
)

// typed returns a field that has a type, nil if it is absent or null. The name of a
// field of an inner object stands behind that object's.
func (t *translation) typed(f fieldList, name string, want valueType) []byte {
	raw := f.given(name[strings.LastIndexByte(name, '.')+1:])
	if raw != nil && !want.is(raw) {
		t.wrongType(name, want.name, raw)
		return nil
	}
	return raw
}

// boolean returns a field that is true or false, false if it is absent.
func (t *translation) boolean(f fieldList, name string) bool {
	raw := t.typed(f, name, aBool)
	return raw != nil && raw[0] == 't'
}

// count counts an element, and reports whether to read on.
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

// objects walks over a list of objects, each of which counts as an element:
//
//	for list := t.objects(f, "content"); list.next(); {
//		… list.fields …
//	}
//
// It has to be walked to its end. The fields are valid until the next object.
type objects struct {
	jsonscan.Members
	t      *translation
	fields fieldList
}

// objects returns a walk over a field that is a list, or is absent.
func (t *translation) objects(f fieldList, name string) objects {
	t.path = append(t.path, step{name: name})
	return objects{Members: jsonscan.Checked(f.get(name)), t: t}
}

// next finds the next object.
func (l *objects) next() bool {
	t := l.t
	last := len(t.path) - 1
	for t.err == nil && l.Next() && t.count() {
		t.path[last].index = l.Index
		if raw := l.Raw(); raw[0] == '{' {
			l.fields = appendFields(l.fields, raw)
			return true
		}
		t.wrongType("", anObject.name, l.Raw())
	}
	t.path = t.path[:last]
	return false
}

// tooManyElements is the answer to a request of more than maxElements.
func tooManyElements() *Error {
	return invalid("", "too_many_elements", "The request has more than 100,000 messages, input items, content blocks, tools and tool calls together. "+
		"Send fewer: shorten or summarize the conversation, or split the request.")
}

// abandoned ends the work for a client that is gone; nothing of it is sent.
func abandoned() *Error {
	return &Error{Kind: KindTimeout, Message: "The request ended before it was read."}
}
