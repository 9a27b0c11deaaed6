package jsonscan

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

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

// appendQuotedOrNull appends s as a JSON string, or null if it is empty.
func appendQuotedOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return AppendQuoted(b, s)
}

// Appendf appends a JSON text with a value for each verb of the format:
//
//	%q  a string as a JSON string
//	%s  a string or JSON, unchanged
//	%d  an integer
//	%n  like %q for a string, %s for JSON, %d for an integer; null if it is empty or 0
//
// Other characters are unchanged. The arguments do not escape.
func Appendf(b []byte, format string, args ...any) []byte {
	for _, arg := range args {
		i := strings.IndexByte(format, '%')
		b = append(b, format[:i]...)
		verb := format[i+1]
		format = format[i+2:]
		switch v := arg.(type) {
		case string:
			switch {
			case verb == 's':
				b = append(b, v...)
			case verb == 'n':
				b = appendQuotedOrNull(b, v)
			default:
				b = AppendQuoted(b, v)
			}
		case []byte:
			if verb == 'n' && len(v) == 0 {
				v = null
			}
			b = append(b, v...)
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case int64:
			if verb == 'n' && v == 0 {
				b = append(b, null...)
			} else {
				b = strconv.AppendInt(b, v, 10)
			}
		}
	}
	return append(b, format...)
}

// null is the JSON null.
var null = []byte("null")
