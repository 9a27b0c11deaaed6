package play

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http/httputil"
	"strconv"
)

// unknownLength is the length of a body that has no Content-Length.
const unknownLength = -1

// ReadHeader reads header lines up to the empty one, and returns what they say
// about the body: its length, or that it comes in chunks.
func ReadHeader(r *bufio.Reader) (length int, chunked bool, err error) {
	length = unknownLength
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return length, chunked, nil
		}
		if value, ok := headerValue(line, "content-length"); ok {
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return 0, false, errors.New("a Content-Length is not a number")
			}
		} else if value, ok := headerValue(line, "transfer-encoding"); ok {
			chunked = bytes.EqualFold(value, []byte("chunked"))
		}
	}
}

// headerValue returns the value of a header line with the name.
func headerValue(line []byte, name string) ([]byte, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name)+1:]), true
}

// ReadBody appends a body to b. One without length and chunks is empty.
func ReadBody(r *bufio.Reader, b []byte, length int, chunked bool) ([]byte, error) {
	if !chunked {
		start := len(b)
		b = append(b, make([]byte, max(length, 0))...)
		_, err := io.ReadFull(r, b[start:])
		return b, err
	}
	buf := bytes.NewBuffer(b)
	if _, err := buf.ReadFrom(httputil.NewChunkedReader(r)); err != nil {
		return nil, err
	}
	return buf.Bytes(), ReadTrailer(r)
}

// ReadTrailer reads what follows the last chunk, up to an empty line.
func ReadTrailer(r *bufio.Reader) error {
	_, _, err := ReadHeader(r)
	return err
}
