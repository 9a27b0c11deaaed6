package link

import (
	"bytes"
	"fmt"
	"io"
)

// maxChunkLine bounds "size CRLF" of a chunk.
const maxChunkLine = 18

// reader reads messages from a stream, through a pooled buffer.
type reader struct {
	stream io.Reader
	large  bool    // whether the buffer is a large one
	extras bool    // whether chunk extensions and trailers are read, and dropped
	pooled *buffer // nil before the first use, and after release
	buf    []byte
	r, w   int   // buf[r:w] is yet to be used
	err    error // of the stream, once there is one
}

// buffered returns the bytes that are there without asking the stream.
func (b *reader) buffered() []byte { return b.buf[b.r:b.w] }

// fill reads more from the stream, once. It returns the stream's error if
// nothing came with it. The buffer must have room.
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
	// What little is left, mostly the end of a chunk, moves to the front: an
	// event shall not be split because it meets the end of the buffer.
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

// rest gives the buffer back until there is something to read again.
func (b *reader) rest() {
	b.pooled.put()
	b.pooled, b.buf, b.r, b.w = nil, nil, 0, 0
}

// release gives the buffer back for good.
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
		// The end may straddle what was there before and what came after.
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

// errHeadTooLarge says that a head has more than limit bytes.
func errHeadTooLarge(limit int) error {
	return malformed(fmt.Sprintf("the head is over %d bytes", limit))
}

// grow doubles a full buffer. The larger one is not pooled: few messages need
// it.
func (b *reader) grow() {
	b.buf = append(make([]byte, 0, 2*len(b.buf)), b.buf...)
	b.buf = b.buf[:cap(b.buf)]
}

// read reads up to len(p) bytes, p not being empty, in one read of the stream
// at most.
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

// chunk reads the size line of the next chunk, with the end of the one before
// it, and after the last chunk also the empty line that stands for the trailer.
// Only sizes as RFC 9112 §7.1 has them are read, without extensions unless
// extras is set.
func (b *reader) chunk(first bool) (int64, error) {
	prefix := ""
	if !first {
		prefix = "\r\n"
	}
	for {
		size, used, err := parseChunk(b.buffered(), prefix, b.extras)
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

// parseChunk parses prefix and a chunk's size line at the beginning of data. It
// returns how many bytes that were: 0 if data ends too early.
func parseChunk(data []byte, prefix string, extras bool) (size int64, used int, err error) {
	n := min(len(data), len(prefix))
	if string(data[:n]) != prefix[:n] {
		return 0, 0, malformed("a chunk does not end in CRLF")
	}
	data = data[n:]
	used = n
	for i, c := range data {
		if c == '\r' && i > 0 {
			return endOfLine(data[i:], size, used+i, extras)
		}
		if extras && i > 0 && (c == ';' || c == ' ' || c == '\t') {
			n, err := extension(data[i:])
			if n == 0 {
				return 0, 0, err
			}
			return endOfLine(data[i+n:], size, used+i+n, extras)
		}
		digit, ok := hexDigit(c)
		if !ok || i >= maxChunkLine-2 || size > 1<<58 {
			return 0, 0, malformed("a chunk has no valid size")
		}
		size = size<<4 | digit
	}
	return 0, 0, nil
}

// endOfLine expects the CRLF after a chunk's size, and for the last chunk one
// more.
func endOfLine(data []byte, size int64, used int, extras bool) (int64, int, error) {
	end := "\r\n"
	if size == 0 {
		end = "\r\n\r\n"
	}
	n := min(len(data), len(end))
	if string(data[:n]) != end[:n] {
		if extras && size == 0 && n > 2 && string(data[:2]) == end[:2] {
			n, err := trailer(data[2:])
			if n == 0 {
				return 0, 0, err
			}
			return 0, used + 2 + n, nil
		}
		return 0, 0, malformed("a chunk's size line is not just a size, or there is a trailer")
	}
	if n < len(end) {
		return 0, 0, nil
	}
	return size, used + n, nil
}

func hexDigit(c byte) (int64, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0'), true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int64(c|0x20-'a') + 10, true
	}
	return 0, false
}

// end expects the end of the stream: a message is the last thing on it.
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
