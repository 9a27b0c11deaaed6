package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 10, ""},
		{"box", 10, "box"},
		{"  a b\t\n", 10, "a b"},
		{"a\x00b\x1b[31mc", 20, "ab[31mc"},
		{"a\xffb\u202ec", 10, "abc"},
		{"héé", 4, "hé"},
		{"ab cd", 3, "ab"},
		{strings.Repeat("é", 100), 5, "éé"},
	} {
		if got := Printable(c.in, c.limit); got != c.want {
			t.Errorf("Printable(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func TestIsPrintable(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{"": true, "a b-é": true, "a\nb": false, "a\u202eb": false, "\xff": false} {
		if IsPrintable(s) != want {
			t.Errorf("IsPrintable(%q) is not %v", s, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x00\xffé\u202e b", 4)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = min(max(limit, 0), 1<<16)
		got := Printable(s, limit)
		if len(got) > limit || !IsPrintable(got) || !utf8.ValidString(got) {
			t.Errorf("%q within %d bytes became %q", s, limit, got)
		}
	})
}

func TestShort(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\x1b[31mb\nc\u202e":    "a[31mbc",
		strings.Repeat("x", 200): strings.Repeat("x", 200),
		strings.Repeat("x", 201): strings.Repeat("x", 200) + "…",
	} {
		if got := Short(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	long := "  " + strings.Repeat("x", 300)
	for in, want := range map[string]string{"  a\x1b[31mb\nc\u202e\xff": "  a[31mbc", long: long} {
		if got := Line(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	if got := Lines("a\x1b[31m\n\tb\u202e\n"); got != "a[31m\n  b\n" {
		t.Errorf("got %q", got)
	}
}
