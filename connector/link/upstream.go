package link

import (
	"io"
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// maxAnswerHead bounds the head of an upstream's answer in bytes. It is below
// maxHead: the answer has to pass the tunnel, where fields are added to it.
const maxAnswerHead = maxHead - 1<<10

// AppendRequest appends the head of a request to a server, with the fields for
// which skip is false and size as its Content-Length. Fields of one connection
// only are left out. The error says which field cannot be sent, never its value.
func AppendRequest(b []byte, r *http.Request, size int64, skip func(name string) bool) ([]byte, error) {
	return appendHead(b, r, r.Host, size, skip)
}

// AnswerReader reads what a server sends on one connection, an answer after the
// other. It is as strict as the tunnel where two readers could see different
// messages, and beyond the tunnel's messages it reads what servers may send:
// HTTP/1.0, bodies that end with the connection, chunk extensions and trailers.
// It is not for use by several goroutines.
type AnswerReader struct {
	in     reader
	body   content
	head   http.Response
	ended  bool // all of the answer was read
	closes bool // no other answer may follow
}

// NewAnswerReader returns a reader of the answers on conn.
func NewAnswerReader(conn io.Reader) *AnswerReader {
	return &AnswerReader{in: reader{stream: conn, large: true, extras: true}}
}

// Buffered reports whether more than the head of the answer has come already.
func (a *AnswerReader) Buffered() bool { return len(a.in.buffered()) > 0 }

// Next waits for the head of the answer to a request with this method, and skips
// informational ones. The error wraps [ErrMalformed], for a switch of protocols
// too, or is the connection's: [io.ErrUnexpectedEOF] when it ended.
func (a *AnswerReader) Next(method string) (status int, header http.Header, err error) {
	a.ended, a.closes = false, false
	for range maxInformational {
		text, err := a.in.head(maxAnswerHead)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, nil, err
		}
		h, final, err := parseResponse(text, &a.head, true)
		if err != nil {
			return 0, nil, err
		}
		if final {
			return a.head.StatusCode, h.header, a.begin(h, method)
		}
	}
	return 0, nil, malformed("too many informational responses")
}

// begin finds out where the answer's body ends: RFC 9112 §6.3.
func (a *AnswerReader) begin(h head, method string) error {
	old := a.head.ProtoMinor == 0
	a.closes = old || httpguts.HeaderValuesContainsToken(h.header["Connection"], "close")
	a.body = content{in: &a.in, chunked: h.chunked, goesOn: true, left: max(h.length, 0)}
	switch {
	case method == http.MethodHead || bodyless(a.head.StatusCode) || h.length == 0:
		a.ended = true
	case h.chunked && old:
		return malformed("Transfer-Encoding in an answer of HTTP/1.0") // RFC 9112 §6.1
	case h.length < 0 && !h.chunked:
		a.closes = true
		a.body.toEnd, a.body.left = true, 1<<62
	}
	return nil
}

// Read reads the body of the answer. It returns what is there, and waits only
// when there is nothing. io.EOF is the end of a complete answer, and may come
// with its last bytes.
func (a *AnswerReader) Read(p []byte) (int, error) {
	if a.ended {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := a.body.read(p)
	a.ended = err == io.EOF
	return n, err
}

// Ended reports whether the answer was read to its end.
func (a *AnswerReader) Ended() bool { return a.ended }

// Reusable reports whether another request may be sent on the connection: the
// answer has ended, and neither side has said or done anything against it.
func (a *AnswerReader) Reusable() bool {
	return a.ended && !a.closes && a.in.err == nil && len(a.in.buffered()) == 0
}

// Release gives the buffer back while there is nothing to read.
func (a *AnswerReader) Release() { a.in.rest() }
