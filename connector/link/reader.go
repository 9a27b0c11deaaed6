package link

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// Limits of the head of a message. Usual limits are 8 KiB to 64 KiB and some 100 fields.
const (
	maxHead   = 64 << 10 // bytes
	MaxFields = 256
	// MaxAnswerHead is the limit of a model server's answer in bytes. The tunnel adds fields.
	MaxAnswerHead = maxHead - 1<<10
	// MaxInformational bounds how many 1xx responses may come before the answer.
	MaxInformational = 16
)

// Malformed returns an ErrMalformed with details. These must not contain bytes of the
// message, which may be secret.
func Malformed(what string) error {
	return fmt.Errorf("%w: %s", ErrMalformed, what)
}

// reader reads one message from a stream. net/http parses it from the pooled buffer.
type reader struct {
	*bufio.Reader               // pooled, or a larger one that reads from it
	pooled        *bufio.Reader // reads from source
	source        source
}

// source is a stream that keeps its first error, which net/http may replace.
type source struct {
	stream io.Reader
	err    error
}

func newReader(stream io.Reader) *reader {
	r := &reader{pooled: readers.Get().(*bufio.Reader), source: source{stream: stream}}
	r.pooled.Reset(&r.source)
	r.Reader = r.pooled
	return r
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.stream.Read(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// release returns the buffer to its pool. Nothing may read afterwards.
func (r *reader) release() {
	r.pooled.Reset(nil)
	readers.Put(r.pooled)
	r.Reader, r.pooled = nil, nil
}

// head waits for the head of the next message, which stays in the buffer. It is stricter than
// net/http: a head is limited, its lines end in CRLF and are not folded, and at most one field is
// about the length of the body.
func (r *reader) head() error {
	framed := false
	for lines, begin, at := 0, 0, 0; ; {
		_, err := r.Peek(at + 1)
		switch {
		case err == bufio.ErrBufferFull && r.Size() < maxHead:
			r.Reader = bufio.NewReaderSize(r.pooled, maxHead)
			continue
		case err == bufio.ErrBufferFull:
			return Malformed(fmt.Sprintf("the head is over %d bytes", maxHead))
		case err != nil:
			return err
		}
		head, _ := r.Peek(r.Buffered())
		for at < len(head) {
			end := bytes.IndexByte(head[at:], '\n')
			if end < 0 {
				at = len(head)
				break
			}
			at += end + 1
			line, ok := bytes.CutSuffix(head[begin:at], []byte("\r\n"))
			if ok && len(line) == 0 && lines > 0 {
				return nil
			}
			name, _, _ := bytes.Cut(line, []byte(":"))
			frames := isFraming(name)
			if !ok || !isLine(line) || lines > 0 && !httpguts.ValidHeaderFieldName(string(name)) || frames && framed {
				return Malformed("a line of the head")
			}
			framed = framed || frames
			if lines++; lines > MaxFields+1 {
				return Malformed(fmt.Sprintf("the head has over %d fields", MaxFields))
			}
			begin = at
		}
	}
}

// isLine reports whether a line of a head is without control characters, and not empty.
func isLine(line []byte) bool {
	for _, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return len(line) > 0
}

// isFraming reports whether a field is about the length of the body. net/http accepts two of these.
func isFraming(name []byte) bool {
	return bytes.EqualFold(name, []byte("Content-Length")) || bytes.EqualFold(name, []byte("Transfer-Encoding"))
}

// response reads the head of the answer to a request, and skips informational ones.
func (r *reader) response(request *http.Request) (*http.Response, error) {
	for range MaxInformational {
		if err := r.head(); err != nil {
			return nil, err
		}
		answer, err := http.ReadResponse(r.Reader, request)
		switch {
		case err != nil, answer.Proto != "HTTP/1.1", answer.StatusCode < 100,
			answer.StatusCode == http.StatusSwitchingProtocols:
			return nil, errNotHTTP
		case answer.StatusCode < 200:
			continue
		case answer.Body != http.NoBody && answer.ContentLength < 0 && len(answer.TransferEncoding) == 0:
			return nil, Malformed("an answer without a length")
		}
		return answer, nil
	}
	return nil, Malformed("too many informational answers")
}

// request reads the head of a request.
func (r *reader) request() (*http.Request, error) {
	if err := r.head(); err != nil {
		return nil, err
	}
	request, err := http.ReadRequest(r.Reader)
	if err != nil || request.Proto != "HTTP/1.1" || !isTarget(request.RequestURI) {
		return nil, errNotHTTP
	}
	if CheckUpstream(request.Host) != nil {
		return nil, Malformed("Host is not the name of an upstream")
	}
	return request, nil
}

// errNotHTTP replaces errors of net/http, which may quote bytes of the message.
var errNotHTTP = Malformed("it is not valid HTTP")

// ended reports whether the end of the stream was read.
func (r *reader) ended() bool { return r.source.err == io.EOF && r.Buffered() == 0 }

// end waits for the end of the stream after a message. It returns io.EOF if nothing comes before.
// Until then, the stream counts as open.
func (r *reader) end() error {
	if _, err := r.Peek(1); err != nil {
		return err
	}
	return Malformed("bytes after the end of the message")
}

// fault returns the cause of a failed read of a message: the stream's error, [io.ErrUnexpectedEOF],
// a failure, or an ErrMalformed without bytes of the message.
func (r *reader) fault(err error) error {
	switch {
	case r.source.err != nil && r.source.err != io.EOF:
		return r.source.err
	case errors.Is(err, ErrMalformed), errors.As(err, new(*Failure)):
		return err
	case err == io.EOF, err == io.ErrUnexpectedEOF, r.source.err == io.EOF && r.Buffered() < len("\r\n"):
		return io.ErrUnexpectedEOF
	}
	return errNotHTTP
}
