package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
)

// valid runs the scanner over a whole text.
func valid(data []byte) bool {
	s := scanner{Data: data}
	i := s.value(s.space(0), 0)
	return i >= 0 && s.space(i) == len(data)
}

var jsonSeeds = []string{
	``, ` `, `{}`, `[]`, `{"a":1}`, `[1,2,3]`, `"x"`, `null`, `true`, `false`, `tru`, `nul`, `nulll`,
	`0`, `-0`, `01`, `-`, `1.`, `.5`, `1e`, `1e+`, `1E-7`, `-12.50e+10`, `+1`, `1.5.5`, `0x1`,
	`{"a":}`, `{"a"}`, `{a:1}`, `{"a":1,}`, `{,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1 "b":2}`, `{"a":1}}`, `[[]`, `[}`,
	`{]`, `{"a":[}`,
	`"\u00e9"`, `"\u00G9"`, `"\u12"`, `"\x"`, `"\`, `"abc`, "\"a\nb\"", "\"a\x00b\"", "\"\x1f\"", "\"\x7f\"", `"\ud800"`,
	"\"\xff\xfe\"",
	`"12345678"`, `"1234567\"8"`, `"12345678\\"`, "\"1234567\x01\"", `{"aaaaaaaaaaaaaaaa\n":"bbbbbbbb\\"}`,
	" \t\r\n{ \"a\" : [ 1 , { } , [ ] ] } \n", "\v{}", "\ufeff{}", `{} {}`, `"\u0010\u0P00"`, `"\u\u\u\u"`,
	"\"\\u\x100000\"",
}

func TestScannerAgreesWithEncodingJSON(t *testing.T) {
	for _, s := range jsonSeeds {
		if got, want := valid([]byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("%q: got %v, encoding/json says %v", s, got, want)
		}
	}
}

func TestScannerFindsSpecialBytesAtEachPlace(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			text := []byte(`"` + strings.Repeat("~", 20) + `"`)
			text[1+at] = byte(c)
			if got, want := valid(text), json.Valid(text); got != want {
				t.Fatalf("byte %#x at %d: got %v, encoding/json says %v", c, at, got, want)
			}
		}
	}
}

func TestScannerDepth(t *testing.T) {
	for _, open := range []string{`[`, `{"a":`} {
		shut := map[string]string{`[`: `]`, `{"a":`: `}`}[open]
		nest := func(n int) []byte { return []byte(strings.Repeat(open, n) + `1` + strings.Repeat(shut, n)) }
		if !valid(nest(MaxDepth)) {
			t.Errorf("%q: depth %d must pass", open, MaxDepth)
		}
		if valid(nest(MaxDepth + 1)) {
			t.Errorf("%q: depth %d must not pass", open, MaxDepth+1)
		}
	}
	m := MembersAt([]byte(strings.Repeat(`[`, MaxDepth+1)+strings.Repeat(`]`, MaxDepth+1)), 0)
	for m.Next() {
	}
	if m.Err() == nil {
		t.Error("members must count their own container")
	}
}

// depthOf is the deepest nesting of valid JSON.
func depthOf(data []byte) (deepest int) {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	depth := 0
	for {
		token, err := dec.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

func FuzzScanner(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, want := valid(data), json.Valid(data)
		if want && !got && depthOf(data) > MaxDepth {
			return // the one documented difference
		}
		if got != want {
			t.Fatalf("got %v, encoding/json says %v", got, want)
		}
		s := scanner{Data: data}
		start := s.space(0)
		if c := s.byteAt(start); c != '{' && c != '[' {
			return
		}
		m := MembersAt(data, start)
		n := 0
		for ; m.Next(); n++ {
			if !json.Valid(m.Raw()) {
				t.Fatalf("member %d is %q", n, m.Raw())
			}
		}
		if ok := m.Err() == nil && m.space(m.end) == len(data); ok != want {
			t.Fatalf("walking: got %v, encoding/json says %v (%v)", ok, want, m.Err())
		}
		if want && m.close == ']' {
			var list []json.RawMessage
			if err := json.Unmarshal(data, &list); err != nil || len(list) != n {
				t.Fatalf("walked %d elements, encoding/json has %d (%v)", n, len(list), err)
			}
		}
	})
}
