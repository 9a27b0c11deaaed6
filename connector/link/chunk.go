package link

import (
	"bytes"
	"strconv"
)

// maxChunkLine bounds "size CRLF" of a chunk.
const maxChunkLine = 18

var crlf = []byte("\r\n")

// parseChunk parses the bytes that [reader.nextChunk] needs, at the beginning of data. It
// returns their number, or 0 if data ends too early.
func parseChunk(data []byte, first bool) (size int64, used int, err error) {
	if !first {
		if used = min(len(data), len(crlf)); string(data[:used]) != string(crlf[:used]) {
			return 0, 0, Malformed("a chunk does not end in CRLF")
		}
	}
	line, rest, complete := bytes.Cut(data[used:], crlf)
	if !complete && len(line) < maxChunkLine {
		return 0, 0, nil
	}
	n, err := strconv.ParseUint(string(line), 16, 60)
	if err != nil || !complete || len(line) > maxChunkLine-len(crlf) {
		return 0, 0, Malformed("a chunk has an invalid size line")
	}
	used += len(line) + len(crlf)
	if n > 0 {
		return int64(n), used, nil
	}
	switch end := rest[:min(len(rest), len(crlf))]; {
	case string(end) == string(crlf):
		return 0, used + len(crlf), nil
	case string(end) == string(crlf[:len(end)]):
		return 0, 0, nil
	default:
		return 0, 0, Malformed("unexpected trailer")
	}
}

// sizeLine begins a chunk whose size is not known yet. setSize sets it.
const sizeLine = "00000000\r\n"

// setSize sets the size of a chunk that begins with sizeLine and lacks its end.
func setSize(chunk []byte) {
	const digits = len(sizeLine) - len("\r\n")
	size := strconv.AppendUint(make([]byte, 0, digits), uint64(len(chunk)-len(sizeLine)), 16)
	copy(chunk[digits-len(size):], size)
}
