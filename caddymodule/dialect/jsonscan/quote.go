package jsonscan

import "unicode/utf8"

// AppendQuoted appends s as a JSON string. Unlike encoding/json, it escapes only what
// JSON requires. U+FFFD replaces invalid UTF-8.
func AppendQuoted(b []byte, s string) []byte {
	return append(AppendEscaped(append(b, '"'), s), '"')
}

// AppendEscaped appends s as a JSON string without quotes.
func AppendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	from := 0 // start of the unescaped run
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = utf8.AppendRune(append(b, s[from:i]...), r)
				from = i + 1
			}
			i += n
			continue
		}
		if n := plainASCII(s[i:]); n > 0 {
			i += n
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	return append(b, s[from:]...)
}

// AppendQuotedOrNull appends s as a JSON string, or null if it is empty.
func AppendQuotedOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return AppendQuoted(b, s)
}
