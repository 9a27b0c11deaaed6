// Package text makes text of others safe to show.
package text

import (
	"strings"
	"unicode"
)

// Printable returns s without what a terminal would obey, cut to max bytes; 0: it is
// not cut. What goes wrong may be described in the words of an unauthenticated peer.
func Printable(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if max > 0 && len(s) > max {
		return strings.ToValidUTF8(s[:max], "") + "…"
	}
	return s
}

// Short is [Printable] for a word or a sentence in a message.
func Short(s string) string { return Printable(s, 200) }
