package jsonscan

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// mayBecomeJSON reports whether text is the start of a JSON text, by encoding/json.
func mayBecomeJSON(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	var value json.RawMessage
	switch err := d.Decode(&value); err {
	case nil:
		return strings.Trim(text[d.InputOffset():], " \t\r\n") == ""
	case io.EOF, io.ErrUnexpectedEOF:
		return true
	default:
		return false
	}
}

func TestJSONPrefix(t *testing.T) {
	for _, text := range []string{
		``, ` `, `{`, `{}`, `{} `, `{"a`, `{"a":`, `{"a":tr`, `{"a":-`, `{"a":0.`, `{"a":1e`, `{"a":1e+`, `{"a":1e+5}`, `[`,
		`[]`, `[1,`, `[1,{"b":[`,
		`"`, `"\`, `"\u`, `"\u00e`, `"é`, `"\ud83d\ude00"`, `null`, `nul`, `-0.5E-10 `, `{"a":{"b":[{},[]]}}`,
		`}`, `]`, `{]`, `[}`, `{,`, `[,`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `{} {`, `{"a":1}{"a":1}`, `01`, `-x`, `1.x`,
		`1ex`, `1e+x`, `tx`, `"\x`, `"\u00g`,
		"\"a\nb", `nulll`, `+1`, `'a'`, `{a:1}`, `1 2`, `[1 2]`, `{"a" 1}`, `{1:2}`, `.5`, `00`, `-01`, `{"a":1]`,
	} {
		for cut := range len(text) + 1 {
			var p Prefix
			p.Add(text[:cut])
			if got, want := p.Add(text[cut:]), mayBecomeJSON(text); got != want {
				t.Errorf("%q cut at %d: %v, want %v", text, cut, got, want)
			}
			if p.Complete() && !json.Valid([]byte(text)) {
				t.Errorf("%q is said to be complete", text)
			}
		}
	}
}

func TestJSONPrefixDepth(t *testing.T) {
	var p Prefix
	if !p.Add(strings.Repeat("[", MaxDepth)) {
		t.Errorf("refused %d levels", MaxDepth)
	}
	if p.Add("[") {
		t.Errorf("took more than %d levels", MaxDepth)
	}
}

func FuzzJSONPrefix(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,2.5e-3,true,null,"\u00e9\n"]}`, `{"a":1}x`, `[[[`, `"\ud800`, `-0`,
		"{\"\x80\":0}",
	} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, cut int) {
		if strings.Count(text, "[")+strings.Count(text, "{") > MaxDepth {
			return
		}
		cut = min(max(cut, 0), len(text))
		var whole, pieces Prefix
		want := mayBecomeJSON(text)
		if got := whole.Add(text); got != want {
			t.Fatalf("%q: %v, encoding/json says %v", text, got, want)
		}
		pieces.Add(text[:cut])
		if pieces.Add(text[cut:]); pieces.state != whole.state {
			t.Fatalf("%q: state %d whole, %d cut at %d", text, whole.state, pieces.state, cut)
		}
		if whole.Complete() && !json.Valid([]byte(text)) {
			t.Fatalf("%q is said to be complete", text)
		}
	})
}
