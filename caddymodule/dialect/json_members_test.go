package dialect

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// What is known to be JSON is walked over as what is not.
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
		a, b := membersOf(data, 0), checkedMembers(data)
		for a.next() {
			if !b.next() || !bytes.Equal(a.raw(), b.raw()) || !bytes.Equal(a.name(), b.name()) {
				t.Fatalf("%s: %s and %s", data, a.raw(), b.raw())
			}
		}
		if b.next() || a.err() != nil || b.err() != nil || a.end != b.end {
			t.Fatalf("%s: %v and %v", data, a.err(), b.err())
		}
	}
	for _, broken := range []string{`{"a`, `["\"`, `{"a":"`, `["a\\\"]`, `[`, `{"`} {
		m := checkedMembers([]byte(broken))
		for m.next() {
		}
		if m.err() == nil {
			t.Errorf("no error for %s", broken)
		}
	}
}
