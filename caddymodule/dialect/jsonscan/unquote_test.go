package jsonscan

import (
	"encoding/json"
	"testing"
)

func FuzzUnquote(f *testing.F) {
	for _, s := range []string{
		`""`, `"a\"\\\/\b\f\n\r\tz"`, `"\u00e9\uD83D\ude00é"`, `"\ud83d"`, `"\ud83dx\u0041"`,
		`"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, "\"\xff\xc3(\"", `"\uFFFd"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, quoted []byte) {
		var want string
		if len(quoted) == 0 || quoted[0] != '"' || json.Unmarshal(quoted, &want) != nil || quoted[len(quoted)-1] != '"' {
			return
		}
		if got := Unquote(quoted); got != want {
			t.Fatalf("%q: %q, encoding/json says %q", quoted, got, want)
		}
		again := AppendQuoted(nil, want)
		if got := Unquote(again); got != want {
			t.Fatalf("%q written as %s, read as %q", want, again, got)
		}
	})
}
