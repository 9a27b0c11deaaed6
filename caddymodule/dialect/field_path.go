package dialect

import (
	"strconv"
	"strings"
)

// fieldPath is where something stands in a request: a member, or an element of an
// array. It is made into text only for an error.
type fieldPath struct {
	in    *fieldPath
	name  string // of the member, "" for an element
	index int    // of the element
	dots  bool   // of the whole request: elements are shown as "a.0", else as "a[0]"
}

// String is the path as errors show it.
func (p *fieldPath) String() string {
	text, _ := p.text()
	return text
}

// text is the path, and whether its elements are shown with dots.
func (p *fieldPath) text() (text string, dots bool) {
	if p.in == nil {
		return strings.Clone(p.name), p.dots // so that paths need not be on the heap
	}
	text, dots = p.in.text()
	switch {
	case p.name != "":
		text += "." + p.name
	case dots:
		text += "." + strconv.Itoa(p.index)
	default:
		text = element(text, p.index)
	}
	return text, dots
}

// element is the path of an element of the array at p.
func (p *fieldPath) element(i int) fieldPath { return fieldPath{in: p, index: i} }

// member is the path of a member of the object at p.
func (p *fieldPath) member(name string) fieldPath { return fieldPath{in: p, name: name} }

// of is the path of a member of the object at p, as errors show it.
func (p *fieldPath) of(name string) string { return p.String() + "." + name }

// element is the path of an array's element, as errors show it.
func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
