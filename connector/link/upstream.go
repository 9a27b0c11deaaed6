package link

import (
	"io"
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// maxAnswerHead bounds the head of an upstream's answer in bytes. It is below
// maxHead: the answer has to pass the tunnel, where fields are added to it.
const maxAnswerHead = maxHead - 1<<10

// AnswerReader reads a server's answers on one connection, one after the other. It is as
// strict as the tunnel about ambiguous messages. In addition it accepts HTTP/1.0, bodies
// that end with the connection, chunk extensions and trailers. It is not safe for
// concurrent use.
type AnswerReader struct {
	in     reader
	head   http.Response
	ended  bool // the answer was read to its end
	closes bool // no other answer can follow
}

// NewAnswerReader returns a reader of the answers on conn.
func NewAnswerReader(conn io.Reader) *AnswerReader {
	return &AnswerReader{in: reader{stream: conn, large: true, goesOn: true, extras: true}}
}

// Buffered reports whether bytes after the head of the answer have already arrived.
func (a *AnswerReader) Buffered() bool { return len(a.in.buffered()) > 0 }

// Next reads the head of the answer to a request with this method, and skips
// informational answers. The error wraps [ErrMalformed], also for a protocol switch, or is
// that of the connection: [io.ErrUnexpectedEOF] at its end.
func (a *AnswerReader) Next(method string) (status int, header http.Header, err error) {
	a.ended, a.closes = false, false
	h, err := a.in.response(maxAnswerHead, &a.head, true)
	if err != nil {
		return 0, nil, unexpectedEnd(err)
	}
	return a.head.StatusCode, h.header, a.begin(h, method)
}

// begin determines the length of the answer's body, RFC 9112 §6.3.
func (a *AnswerReader) begin(h head, method string) error {
	old := a.head.ProtoMinor == 0
	a.closes = old || httpguts.HeaderValuesContainsToken(h.header["Connection"], "close")
	a.in.body = body{chunked: h.chunked, left: max(h.length, 0)}
	switch {
	case method == http.MethodHead || bodyless(a.head.StatusCode) || h.length == 0:
		a.ended = true
	case h.events:
		return malformed("Transfer-Encoding is not chunked")
	case h.chunked && old:
		return malformed("Transfer-Encoding in an answer of HTTP/1.0") // RFC 9112 §6.1
	case h.length < 0 && !h.chunked:
		a.closes = true
		a.in.toEnd, a.in.left = true, 1<<62
	}
	return nil
}

// Read reads the body of the answer. It returns available bytes, and waits only if there
// are none. It returns io.EOF at the end of a complete answer, possibly with the last
// bytes.
func (a *AnswerReader) Read(p []byte) (int, error) {
	if a.ended {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := a.in.readBody(p)
	a.ended = err == io.EOF
	return n, err
}

// Ended reports whether the answer was read to its end.
func (a *AnswerReader) Ended() bool { return a.ended }

// Reusable reports whether another request can be sent on the connection: the answer has
// ended, and the connection is neither closed nor out of step.
func (a *AnswerReader) Reusable() bool {
	return a.ended && !a.closes && a.in.err == nil && len(a.in.buffered()) == 0
}

// Release returns the buffer to its pool until the next read.
func (a *AnswerReader) Release() { a.in.rest() }
