package text

import (
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	for _, test := range []struct {
		in   string
		max  int
		want string
	}{
		{"a\x1b[31mb\nc\u202e", 0, "a[31mbc"}, {"häß", 3, "hä…"}, {"abc", 3, "abc"}, {strings.Repeat("x", 300), 0, strings.Repeat("x", 300)},
		{"ä\xffx", 2, "ä…"},
	} {
		if got := Printable(test.in, test.max); got != test.want {
			t.Errorf("%q, %d: %q", test.in, test.max, got)
		}
	}
}
