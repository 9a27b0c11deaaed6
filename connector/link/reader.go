package link

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

const (
	// smallBuffer holds most heads, events and small bodies. Each stream keeps one while
	// it waits for data.
	smallBuffer = 4 << 10
	// largeChunk is the maximum number of body bytes in one write.
	largeChunk = 32 << 10
	// largeBuffer holds a head, and a large chunk with its framing.
	largeBuffer = largeChunk + smallBuffer
)

// Buffers are shared by all streams of a process. An idle tunnel should hold none.
var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{array: make([]byte, smallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{array: make([]byte, largeBuffer)} }}
)

// buffer is a reusable byte slice.
type buffer struct {
	array []byte
}

// getBuffer returns a buffer for about n bytes, at most largeBuffer.
func getBuffer(n int) *buffer {
	if n <= smallBuffer {
		return smallBuffers.Get().(*buffer)
	}
	return largeBuffers.Get().(*buffer)
}

// put returns the buffer to its pool. b may be nil.
func (b *buffer) put() {
	switch {
	case b == nil:
	case len(b.array) == smallBuffer:
		smallBuffers.Put(b)
	default:
		largeBuffers.Put(b)
	}
}

// MaxInformational bounds how many 1xx responses may come before the answer.
const MaxInformational = 16

// reader reads messages from a stream, through a pooled buffer: the head of a message,
// then its body.
type reader struct {
	stream io.Reader
	pooled *buffer // nil before the first use, and after release
	buf    []byte
	r, w   int   // buf[r:w] is unread
	err    error // of the stream
	body
}

// body is the rest of the current message's body: its length is known, or it is chunked.
type body struct {
	chunked bool
	started bool    // the first chunk was read
	left    int64   // remaining bytes of the body or the chunk
	events  *pieces // of the transfer coding "events", or nil
}

// buffered returns the unread bytes in the buffer.
func (b *reader) buffered() []byte { return b.buf[b.r:b.w] }

// fill reads from the stream once. It returns the stream's error if no bytes were read.
// The buffer must not be full.
func (b *reader) fill() error {
	if b.err != nil {
		return b.err
	}
	if b.pooled == nil {
		b.pooled = getBuffer(smallBuffer)
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
	b.events.put()
	b.events = nil
	if b.err == nil {
		b.err = io.ErrClosedPipe
	}
}

// head reads up to and including the first empty line, at most maxHead bytes.
func (b *reader) head() (string, error) {
	searched := 0
	for {
		// The end may straddle two reads.
		from := max(searched-3, 0)
		if i := bytes.Index(b.buffered()[from:], []byte("\r\n\r\n")); i >= 0 {
			n := from + i + 4
			if n > maxHead {
				return "", errHeadTooLarge
			}
			text := string(b.buffered()[:n])
			b.r += n
			return text, nil
		}
		if hasBareLF(b.buffered(), from) {
			return "", Malformed("a header line does not end in CRLF") // its end would never come
		}
		searched = len(b.buffered())
		if searched >= maxHead {
			return "", errHeadTooLarge
		}
		if searched == len(b.buf) && searched > 0 {
			b.grow()
		}
		if err := b.fill(); err != nil {
			return "", err
		}
	}
}

// hasBareLF reports whether a line that ends at from or later does not end in CRLF.
func hasBareLF(head []byte, from int) bool {
	for {
		i := bytes.IndexByte(head[from:], '\n')
		if i < 0 {
			return false
		}
		if from += i; from == 0 || head[from-1] != '\r' {
			return true
		}
		from++
	}
}

// response reads the head of a response into r, and skips informational responses.
func (b *reader) response(r *http.Response) (head, error) {
	for range MaxInformational {
		text, err := b.head()
		if err != nil {
			return head{}, err
		}
		h, final, err := parseResponse(text, r)
		if err != nil || final {
			return h, err
		}
	}
	return head{}, Malformed("too many informational responses")
}

// errHeadTooLarge is the error for a head over maxHead bytes.
var errHeadTooLarge = Malformed(fmt.Sprintf("the head is over %d bytes", maxHead))

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

// end checks that the stream ends after the message.
func (b *reader) end() error {
	if b.r == b.w {
		if err := b.fill(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
	return Malformed("bytes after the end of the message")
}

// readBody reads the next bytes of the body. It reads the stream at most once, and not at
// all if bytes are buffered, so that events are not delayed. It returns io.EOF only at the
// end of the message, possibly with the last bytes.
func (b *reader) readBody(p []byte) (n int, err error) {
	if b.events != nil {
		return b.readEvents(p)
	}
	for n < len(p) {
		if b.left == 0 {
			if err := b.next(n == 0); err == errNotBuffered {
				return n, nil
			} else if err != nil {
				return n, err
			}
			continue
		}
		if n > 0 && len(b.buffered()) == 0 {
			return n, nil
		}
		m, err := b.read(p[n:min(int64(len(p)), int64(n)+b.left)])
		b.left -= int64(m)
		n += m
		if err != nil {
			return n, unexpectedEnd(err)
		}
	}
	return n, nil
}

// unexpectedEnd returns io.ErrUnexpectedEOF for io.EOF, and other errors unchanged.
func unexpectedEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// errNotBuffered is returned by next if it needs bytes that have not arrived.
var errNotBuffered = errors.New("not buffered")

// next advances to the next chunk. It returns io.EOF at the end of the message. If wait is
// false, it does not read from the stream, and returns errNotBuffered instead.
func (b *reader) next(wait bool) error {
	used := 0
	if b.chunked {
		size, n, err := b.nextChunk(wait)
		if err != nil {
			return err
		}
		if size > 0 {
			b.r += n
			b.started, b.left = true, size
			return nil
		}
		used = n
	}
	if !wait && b.err == nil {
		return errNotBuffered // the end of the stream
	}
	b.r += used
	if err := b.end(); err != nil {
		return err
	}
	return io.EOF
}

// nextChunk parses the end of the previous chunk and the size line of the next one, and the
// end after the last chunk. It follows RFC 9112 §7.1, without extensions and trailers.
func (b *reader) nextChunk(wait bool) (size int64, used int, err error) {
	for {
		size, used, err = parseChunk(b.buffered(), !b.started)
		switch {
		case err != nil || used > 0:
			return size, used, err
		case !wait:
			return 0, 0, errNotBuffered
		}
		if err := b.fill(); err != nil {
			return 0, 0, unexpectedEnd(err)
		}
	}
}
