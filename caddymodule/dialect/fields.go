package dialect

import (
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// fieldList holds the known members of an object. Of duplicates, it keeps the last one,
// like most JSON parsers.
type fieldList []fieldOf

// fieldOf is one member.
type fieldOf struct {
	name string
	raw  []byte
}

// knownFields contains every name that is looked up in a fieldList. Other members are
// dropped, which bounds the length of the list.
var knownFields = func() map[string]string {
	known := make(map[string]string)
	for i := range formats {
		for _, name := range slices.Concat(formats[i].request, formats[i].fields) {
			known[name] = name
		}
	}
	return known
}()

// readFields reads an object that is known to be valid JSON.
func readFields(object []byte) fieldList { return appendFields(nil, object) }

// appendFields reads an object and reuses the memory of f.
func appendFields(f fieldList, object []byte) fieldList {
	f = f[:0]
	for m := jsonscan.Checked(object); m.Next(); {
		f.note(&m)
	}
	return f
}

// note adds a member if its name is known.
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

// get returns the value of a field, nil if it is absent.
func (f fieldList) get(name string) []byte {
	for i := range f {
		if f[i].name == name {
			return f[i].raw
		}
	}
	if _, ok := knownFields[name]; !ok {
		panic("dialect: " + name + " is missing from the fields of its dialect")
	}
	return nil
}

// text returns the value of a string field, or "".
func (f fieldList) text(name string) string { return jsonscan.String(f.get(name)) }

// given returns the value of a field, nil if it is absent or null.
func (f fieldList) given(name string) []byte {
	if raw := f.get(name); len(raw) > 0 && !jsonscan.IsNull(raw) {
		return raw
	}
	return nil
}

// inner returns the members of a field that is an object. It returns false for other
// fields.
func (f fieldList) inner(name string) (fieldList, bool) {
	raw := f.given(name)
	if !jsonscan.IsObject(raw) {
		return nil, false
	}
	return readFields(raw), true
}

// withMembers prepends members to an object, unless it already has them with a value
// other than null and "". pairs are names and JSON values.
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
			b = append(append(append(b, m.Key.Bytes(object)...), ':'), m.Raw()...)
			b = append(b, ',')
		}
	}
	b[len(b)-1] = '}'
	return b
}
