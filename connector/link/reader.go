package link

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// maxChunkLine bounds "size CRLF" of a chunk.
const maxChunkLine = 18

// reader reads messages from a stream, through a pooled buffer.
type reader struct {
	stream io.Reader
	large  bool    // use a large buffer
	extras bool    // accept chunk extensions and trailers, and drop them
	pooled *buffer // nil before the first use, and after release
	buf    []byte
	r, w   int   // buf[r:w] is unread
	err    error // of the stream
}

// buffered returns the unread bytes in the buffer.
func (b *reader) buffered() []byte { return b.buf[b.r:b.w] }

// fill reads from the stream once. It returns the stream's error if no bytes were read.
// The buffer must have room.
func (b *reader) fill() error {
	if b.err != nil {
		return b.err
	}
	if b.pooled == nil {
		size := smallBuffer
		if b.large {
			size = largeBuffer
		}
		b.pooled = getBuffer(size)
		b.buf = b.pooled.array
	}
	// A small rest, mostly the end of a chunk, moves to the front, so that an event is not
	// split at the end of the buffer.
	if left := b.w - b.r; b.r > 0 && (left <= maxChunkLine || b.w == len(b.buf)) {
		b.r, b.w = 0, copy(b.buf, b.buf[b.r:b.w])
	}
	n, err := b.stream.Read(b.buf[b.w:])
	b.w += n
	b.err = err
	if n > 0 {
		return nil
	}
	return err
}

// rest returns the buffer to its pool until the next read.
func (b *reader) rest() {
	b.pooled.put()
	b.pooled, b.buf, b.r, b.w = nil, nil, 0, 0
}

// release returns the buffer to its pool and ends all reads.
func (b *reader) release() {
	b.rest()
	if b.err == nil {
		b.err = io.ErrClosedPipe
	}
}

// head reads up to and including the first empty line, at most limit bytes.
func (b *reader) head(limit int) (string, error) {
	searched := 0
	for {
		// The end may straddle two reads.
		from := max(searched-3, 0)
		if i := bytes.Index(b.buffered()[from:], []byte("\r\n\r\n")); i >= 0 {
			n := from + i + 4
			if n > limit {
				return "", errHeadTooLarge(limit)
			}
			text := string(b.buffered()[:n])
			b.r += n
			return text, nil
		}
		searched = len(b.buffered())
		if searched >= limit {
			return "", errHeadTooLarge(limit)
		}
		if searched == len(b.buf) && searched > 0 {
			b.grow()
		}
		if err := b.fill(); err != nil {
			return "", err
		}
	}
}

// errHeadTooLarge returns the error for a head over limit bytes.
func errHeadTooLarge(limit int) error {
	return malformed(fmt.Sprintf("the head is over %d bytes", limit))
}

// grow doubles a full buffer. Few messages need that, so the result is not pooled.
func (b *reader) grow() {
	b.buf = append(make([]byte, 0, 2*len(b.buf)), b.buf...)
	b.buf = b.buf[:cap(b.buf)]
}

// read reads up to len(p) bytes with at most one read of the stream. p must not be empty.
func (b *reader) read(p []byte) (int, error) {
	if b.r == b.w {
		if len(p) >= smallBuffer && b.err == nil {
			n, err := b.stream.Read(p)
			b.err = err
			if n > 0 {
				return n, nil
			}
			return 0, err
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.buffered())
	b.r += n
	return n, nil
}

// chunk reads the end of the previous chunk and the size line of the next one, and the
// trailer after the last chunk. It follows RFC 9112 §7.1, without extensions unless extras
// is set.
func (b *reader) chunk(first bool) (int64, error) {
	for {
		size, used, err := parseChunk(b.buffered(), first, b.extras)
		if err != nil {
			return 0, err
		}
		if used > 0 {
			b.r += used
			return size, nil
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
}

var crlf = []byte("\r\n")

// parseChunk parses the bytes that [reader.chunk] reads, at the beginning of data. It
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

// end checks that the stream ends after the message.
func (b *reader) end() error {
	if b.r == b.w {
		if err := b.fill(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
	return malformed("bytes after the end of the message")
}
