package link

import (
	"bytes"
	"strconv"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxChunkLine bounds "size CRLF" of a chunk.
	maxChunkLine = 18
	// maxExtra bounds a chunk extension, and a trailer.
	maxExtra = 4 << 10
)

var crlf = []byte("\r\n")

// parseChunk parses the bytes that [reader.nextChunk] needs, at the beginning of data. It
// returns their number, or 0 if data ends too early.
func parseChunk(data []byte, first, extras bool) (size int64, used int, err error) {
	if !first {
		if used = min(len(data), len(crlf)); string(data[:used]) != string(crlf[:used]) {
			return 0, 0, malformed("a chunk does not end in CRLF")
		}
	}
	line, rest, complete := bytes.Cut(data[used:], crlf)
	if !complete && (len(line) < maxChunkLine || extras && len(line) < maxChunkLine+maxExtra) {
		return 0, 0, nil
	}
	digits := line
	if i := bytes.IndexAny(line, "; \t"); i >= 0 && extras {
		if digits = line[:i]; !isExtension(line[i:]) {
			return 0, 0, malformed("a chunk has an invalid extension")
		}
	}
	n, err := strconv.ParseUint(string(digits), 16, 60)
	if err != nil || !complete || len(digits) > maxChunkLine-len(crlf) {
		return 0, 0, malformed("a chunk has an invalid size line")
	}
	used += len(line) + len(crlf)
	if n > 0 {
		return int64(n), used, nil
	}
	after, err := parseTrailer(rest, extras)
	if err != nil || after == 0 {
		return 0, 0, err
	}
	return 0, used + after, nil
}

// sizeLine begins a chunk whose size is not known yet. setSize sets it.
const sizeLine = "00000000\r\n"

// setSize sets the size of a chunk that begins with sizeLine and lacks its end.
func setSize(chunk []byte) {
	const digits = len(sizeLine) - len("\r\n")
	size := strconv.AppendUint(make([]byte, 0, digits), uint64(len(chunk)-len(sizeLine)), 16)
	copy(chunk[digits-len(size):], size)
}

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
