// Package text makes untrusted text safe to show, on pages, in terminals, in logs and in
// command lines, and finds the name that a mistyped one stands for.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s without unprintable characters and invalid UTF-8.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}

// Printable returns [Line] of s, cut to at most limit bytes and without surrounding
// spaces. It may be empty.
func Printable(s string, limit int) string {
	s = Line(s[:min(len(s), 4*limit)]) // the rest does not matter
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return strings.TrimSpace(s)
}

// IsPrintable reports whether s is valid UTF-8 and all of it is printable.
func IsPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Lines applies [Line] to each line of s, with tabs as two spaces.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Line(strings.ReplaceAll(line, "\t", "  "))
	}
	return strings.Join(lines, "\n")
}

// Within is [Printable], with "…" where it cuts.
func Within(s string, limit int) string {
	short := Printable(s, limit)
	if len(s) > limit && len(Printable(s, 2*limit)) > len(short) {
		short += "…"
	}
	return short
}

// Short is [Within] 200 bytes.
func Short(s string) string { return Within(s, 200) }
