// Package text makes texts that come from outside fit to be shown: on pages, in
// terminals and in logs.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s without what cannot be printed, such as control characters and bytes
// that are not UTF-8.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}

// Printable is [Line], cut to at most limit bytes and without blanks around it. It may be
// empty.
func Printable(s string, limit int) string {
	s = Line(s[:min(len(s), 4*limit)]) // the rest cannot matter
	for len(s) > limit {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return strings.TrimSpace(s)
}

// IsPrintable reports whether s is UTF-8 in which all can be printed.
func IsPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Short is [Printable] for a word or a sentence in a message; "…" marks a cut.
func Short(s string) string {
	const limit = 200
	short := Printable(s, limit)
	if len(s) > limit && len(Printable(s, 2*limit)) > len(short) {
		short += "…"
	}
	return short
}
