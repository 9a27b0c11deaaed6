package link

import (
	"bytes"

	"golang.org/x/net/http/httpguts"
)

// maxExtra bounds a chunk extension, and a trailer.
const maxExtra = 4 << 10

// isExtension reports whether s may follow a chunk's size: an extension, which may be
// ignored (RFC 9112 §7.1.1), or the spaces with which some servers pad the size.
func isExtension(s []byte) bool {
	return len(s) <= maxExtra && httpguts.ValidHeaderFieldValue(string(s)) &&
		(s[0] == ';' || len(bytes.Trim(s, " \t")) == 0)
}

// parseTrailer parses the data after the last chunk: an empty line, preceded by fields if
// extras is set. The fields are ignored. It returns the number of bytes, or 0 if data ends
// too early.
func parseTrailer(data []byte, extras bool) (int, error) {
	n := min(len(data), len(crlf))
	switch {
	case string(data[:n]) == string(crlf):
		return n, nil
	case string(data[:n]) == string(crlf[:n]):
		return 0, nil
	case !extras:
		return 0, malformed("unexpected trailer")
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
