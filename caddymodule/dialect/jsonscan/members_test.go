package jsonscan

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Checked iterates like MembersAt over valid JSON.
func TestCheckedMembers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	pieces := []string{`\\`, `\"`, `\n`, `\u00e9`, `\\\"`, "é", "a", "}", "]", ",", " "}
	for range 2000 {
		text := func() []byte {
			b := []byte{'"'}
			for range r.IntN(8) {
				b = append(b, pieces[r.IntN(len(pieces))]...)
			}
			return append(b, '"')
		}
		data := []byte{'{'}
		for i := range 1 + r.IntN(4) {
			if i > 0 {
				data = append(data, ',')
			}
			data = append(append(data, text()...), ':')
			data = append(append(append(data, `[{"x":`...), text()...), "},1]"...)
		}
		data = append(data, '}')
		a, b := MembersAt(data, 0), Checked(data)
		for a.Next() {
			if !b.Next() || !bytes.Equal(a.Raw(), b.Raw()) || !bytes.Equal(a.Name(), b.Name()) {
				t.Fatalf("%s: %s and %s", data, a.Raw(), b.Raw())
			}
		}
		if b.Next() || a.Err() != nil || b.Err() != nil || a.end != b.end {
			t.Fatalf("%s: %v and %v", data, a.Err(), b.Err())
		}
	}
	for _, broken := range []string{`{"a`, `["\"`, `{"a":"`, `["a\\\"]`, `[`, `{"`} {
		m := Checked([]byte(broken))
		for m.Next() {
		}
		if m.Err() == nil {
			t.Errorf("no error for %s", broken)
		}
	}
}

// The elements of an array have no names.
func TestNameInAnArray(t *testing.T) {
	for _, text := range []string{`[0]`, `["a"]`, `[{"a":1}]`, `[[0]]`} {
		for m := MembersAt([]byte(text), 0); m.Next(); {
			if name := m.Name(); name != nil {
				t.Errorf("%s: the element has the name %q", text, name)
			}
		}
	}
}

// Only the white space of JSON is valid around a value.
func TestValidSpace(t *testing.T) {
	for text, want := range map[string]bool{" 1\r\n\t": true, "1\v": false, "\f1": false, "1\u00a0": false, "": false} {
		if Valid([]byte(text)) != want {
			t.Errorf("Valid(%q) is %t", text, !want)
		}
	}
}
