package link

import (
	"bytes"

	"golang.org/x/net/http/httpguts"
)

// maxExtra bounds a chunk extension, and a trailer.
const maxExtra = 4 << 10

// isExtension reports whether s can stand between a chunk's size and the end of its
// line: an extension, which may be ignored (RFC 9112 §7.1.1), or the spaces with
// which some servers pad the size.
func isExtension(s []byte) bool {
	return len(s) <= maxExtra && httpguts.ValidHeaderFieldValue(string(s)) &&
		(s[0] == ';' || len(bytes.Trim(s, " \t")) == 0)
}

// parseTrailer parses what comes behind the line of the last chunk: an empty line, and
// before it, if extras is set, fields, which are unused. It returns how many bytes
// that were: 0 if data ends too early.
func parseTrailer(data []byte, extras bool) (int, error) {
	n := min(len(data), len(crlf))
	switch {
	case string(data[:n]) == string(crlf):
		return n, nil
	case string(data[:n]) == string(crlf[:n]):
		return 0, nil
	case !extras:
		return 0, malformed("there is a trailer")
	}
	end := bytes.Index(data, []byte("\r\n\r\n"))
	switch {
	case end < 0 && len(data) <= maxExtra:
		return 0, nil
	case end < 0 || end > maxExtra:
		return 0, malformed("a trailer is too long")
	}
	n = end + 2*len(crlf)
	_, err := parseFields(string(data[:n]))
	return n, err
}
