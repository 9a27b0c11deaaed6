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

// Short is [Printable] with a limit of 200 bytes. "…" marks a cut.
func Short(s string) string {
	const limit = 200
	short := Printable(s, limit)
	if len(s) > limit && len(Printable(s, 2*limit)) > len(short) {
		short += "…"
	}
	return short
}
