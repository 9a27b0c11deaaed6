package link

import (
	"bytes"

	"golang.org/x/net/http/httpguts"
)

// maxExtra bounds a chunk extension, and a trailer.
const maxExtra = 4 << 10

// extension skips what stands between a chunk's size and the end of its line:
// an extension, which may be ignored (RFC 9112 §7.1.1), or the spaces
// with which some servers pad the size. It returns 0 if data ends too
// early.
func extension(data []byte) (int, error) {
	n := bytes.IndexByte(data, '\r')
	if n < 0 && len(data) <= maxExtra {
		return 0, nil
	}
	if n < 0 || n > maxExtra || !httpguts.ValidHeaderFieldValue(string(data[:n])) ||
		data[0] != ';' && len(bytes.Trim(data[:n], " \t")) > 0 {
		return 0, malformed("a chunk has an extension that is none")
	}
	return n, nil
}

// trailer skips the fields behind the last chunk, which are unused. It
// returns 0 if data ends too early.
func trailer(data []byte) (int, error) {
	end := bytes.Index(data, []byte("\r\n\r\n"))
	if end < 0 && len(data) <= maxExtra {
		return 0, nil
	}
	if end < 0 || end > maxExtra {
		return 0, malformed("a trailer is too long")
	}
	n := end + len("\r\n\r\n")
	if _, err := parseFields(string(data[:n])); err != nil {
		return 0, err
	}
	return n, nil
}
