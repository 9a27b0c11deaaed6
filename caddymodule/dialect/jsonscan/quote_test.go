package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// Quoting and unquoting returns the same text, with a special character at any index.
func TestAppendQuoted(t *testing.T) {
	t.Parallel()
	for _, special := range []string{
		"", "\"", "\\", "\n", "\r", "\t", "\x00", "\x1f", "\x7f", "\u0080", "é", "€", "😀",
		"\xff", "\xe2\x82",
	} {
		for length := range 20 {
			for at := range length + 1 {
				text := strings.Repeat("a", at) + special + strings.Repeat("!", length-at) + special
				quoted := AppendQuoted(nil, text)
				want := strings.ToValidUTF8(text, "\uFFFD")
				if !utf8.ValidString(text) {
					encoded, err := json.Marshal(text)
					if err != nil || json.Unmarshal(encoded, &want) != nil {
						t.Fatal(err)
					}
				}
				var got string
				if err := json.Unmarshal(quoted, &got); err != nil || got != want {
					t.Errorf("%q is %s, read as %q, %v", text, quoted, got, err)
				}
				if unquoted := Unquote(quoted); unquoted != want {
					t.Errorf("%s is read as %q, want %q", quoted, unquoted, want)
				}
			}
		}
	}
}
