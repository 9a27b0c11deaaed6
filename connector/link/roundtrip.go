package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/postern-dev/postern/connector/panics"
)

// RoundTrip sends r on a new stream and reads the head of the answer. It is the gateway's
// end of a request. If header is set, r is for a connector of a peer, which serves the stream with
// [ReadRelayHeader] and [Relay].
//
// r.Host (or r.URL.Host) is the name of an upstream. r.ContentLength is -1 if the length is
// unknown. r.Body should be in memory: it is read to its end even if the answer begins
// earlier. RoundTrip closes it. Hop-by-hop fields and fields for the gateway alone (Authorization,
// Cookie, Origin, X-Api-Key) are left out.
//
// done, which may be nil, is called once the request no longer uses the stream: at the end
// of the answer's body, at its Close, or when RoundTrip fails.
//
// When ctx ends, or the answer's body is closed before its end, both directions are reset
// with CodeCancelled. RoundTrip and reads of the body return the cause of ctx, or wrap an
// error of this package: that of a reset, [ErrTunnelLost] or [ErrMalformed]; or
// [io.ErrUnexpectedEOF].
func RoundTrip(ctx context.Context, s Stream, header RelayHeader, r *http.Request, done func(),
) (*http.Response, error) {
	x := &exchange{ctx: ctx, stream: s, header: header, request: r, done: done}
	x.in.stream = s
	if ctx.Done() != nil {
		x.unwatch = context.AfterFunc(ctx, x.cancel)
	}
	begun := false
	defer func() {
		if !begun { // after a panic, too
			x.cancel()
			x.finish()
		}
	}()
	err := x.send()
	if err == nil {
		err = x.receive()
	}
	if err != nil {
		return nil, x.fail(err)
	}
	begun = true
	return &x.answer, nil
}

// exchange is one request and its answer, and the body of the answer.
type exchange struct {
	ctx     context.Context
	stream  Stream
	header  RelayHeader
	request *http.Request
	done    func()
	unwatch func() bool // stops watching ctx; nil: not watching

	// uploaded is closed when the rest of a large body was sent or abandoned. It is nil
	// without a rest. uploadErr is the error of reading the body.
	uploaded  chan struct{}
	uploadErr error

	answer http.Response

	finished atomic.Bool // finish has run

	mu  sync.Mutex // held by Read; guards the fields below
	in  reader
	err error // what Read returns from now on
}

// cancel resets both directions; it is safe for concurrent use.
func (x *exchange) cancel() {
	stopReading(x.stream, CodeCancelled)
	x.stream.CancelWrite(CodeCancelled.wire())
}

// fail aborts the exchange before the answer has begun.
func (x *exchange) fail(err error) error {
	x.cancel()
	return x.explain(err)
}

// explain returns the cause of an error of the stream, which must have been canceled. A panic of
// the upload is the caller's.
func (x *exchange) explain(err error) error {
	if x.uploaded != nil {
		<-x.uploaded // soon: its stream is reset
		if p, ok := errors.AsType[*panics.Error](x.uploadErr); ok {
			panic(p)
		}
		if x.uploadErr != nil {
			return x.uploadErr
		}
	}
	return streamError(x.ctx, err)
}

// finish releases the resources of the exchange, once. Both directions of the stream must
// have ended or been reset.
func (x *exchange) finish() {
	if x.finished.Swap(true) {
		return
	}
	if x.unwatch != nil {
		x.unwatch()
	}
	if x.uploaded != nil {
		select {
		case <-x.uploaded:
		default:
			// The answer is complete: the rest is not needed.
			x.stream.CancelWrite(CodeNone.wire())
			<-x.uploaded
		}
	}
	x.in.release()
	if x.done != nil {
		x.done()
	}
}

// send writes the request. A small one takes a single write, without another goroutine.
func (x *exchange) send() error {
	r := x.request
	body := r.Body
	if body == nil {
		body = http.NoBody
	}
	size := r.ContentLength
	if body == http.NoBody {
		size = 0
	}
	expected := size
	if size < 0 {
		expected = largeChunk
	}
	buf := getBuffer(int(min(expected, largeChunk)) + smallBuffer/2)
	head, err := appendRequest(x.header.append(buf.array[:0]), r, size)
	var n int
	if err == nil {
		head, n, err = x.fillBody(head, body, size)
	}
	if err != nil {
		buf.put()
		_ = body.Close()
		return err
	}
	_, writeErr := x.stream.Write(head)
	rest := size - int64(n)
	if writeErr == nil && rest != 0 {
		x.uploaded = make(chan struct{})
		go x.upload(buf, body, rest)
		return nil
	}
	buf.put()
	_ = body.Close()
	x.endWrite(writeErr)
	return nil
}

// endWrite ends the write side. After a failed write it only resets that side, as the
// connector may have stopped reading to answer early, such as with a 413. If the stream
// is lost, reading fails too.
func (x *exchange) endWrite(err error) {
	if err == nil {
		err = x.stream.Close()
	}
	if err != nil {
		x.stream.CancelWrite(CodeNone.wire())
	}
}

// fillBody reads as much of the body as fits after the head.
func (x *exchange) fillBody(b []byte, body io.Reader, size int64) ([]byte, int, error) {
	if size <= 0 {
		return b, 0, nil
	}
	fits := int(min(size, int64(cap(b)-len(b))))
	n, err := io.ReadFull(body, b[len(b):len(b)+fits])
	if err != nil {
		return nil, 0, bodyError(err)
	}
	return b[:len(b)+n], n, nil
}

// bodyError wraps an error of reading the request body.
func bodyError(err error) error {
	return fmt.Errorf("reading the request's body: %w", unexpectedEnd(err))
}

// upload sends the rest of a large body, or one of unknown length in chunks.
func (x *exchange) upload(buf *buffer, body io.ReadCloser, rest int64) {
	defer close(x.uploaded)
	defer body.Close()
	defer buf.put()
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			x.uploadErr = p
			x.cancel()
		}
	}()
	for rest != 0 {
		piece, err := buf.array[:min(max(rest, 0), largeChunk)], error(nil)
		if rest < 0 {
			piece, rest, err = readChunk(buf.array, body)
		} else {
			_, err = io.ReadFull(body, piece)
			rest -= int64(len(piece))
		}
		if err != nil {
			x.uploadErr = bodyError(err)
			x.cancel()
			return
		}
		if _, err := x.stream.Write(piece); err != nil {
			x.endWrite(err)
			return
		}
	}
	x.endWrite(nil)
}

// readChunk reads body into b, as a chunk. rest is -1, or 0 after the last chunk.
func readChunk(b []byte, body io.Reader) (chunk []byte, rest int64, err error) {
	const line = len(sizeLine)
	n := 0
	for n < largeChunk && err == nil {
		var more int
		more, err = body.Read(b[line+n : line+largeChunk])
		n += more
	}
	if err != nil && err != io.EOF {
		return nil, 0, err
	}
	chunk, rest = b[:0], -1
	if n > 0 {
		chunk = b[:line+n]
		copy(chunk, sizeLine)
		setSize(chunk)
		chunk = append(chunk, crlf...)
	}
	if err == io.EOF {
		chunk, rest = append(chunk, "0\r\n\r\n"...), 0
	}
	return chunk, rest, nil
}

// appendRequest appends the head of a request to an upstream, with size as its Content-Length.
// A size of -1 is unknown: the body is chunked. It leaves out hop-by-hop and private fields.
// The error names an invalid field, but never its value.
func appendRequest(b []byte, r *http.Request, size int64) ([]byte, error) {
	if err := CheckUpstream(cmp.Or(r.Host, r.URL.Host)); err != nil {
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	method, path, query := r.Method, r.URL.EscapedPath(), r.URL.RawQuery
	if method == "" {
		method = http.MethodGet
	}
	if !httpguts.ValidHeaderFieldName(method) || !isTarget(path) || query != "" && !isTarget("/"+query) {
		return nil, fmt.Errorf("sending a request: %w: invalid method or path", ErrMalformed)
	}
	b = append(b, method...)
	b = append(b, ' ')
	b = append(b, path...)
	if query != "" {
		b = append(b, '?')
		b = append(b, query...)
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, cmp.Or(r.Host, r.URL.Host)...)
	b = append(b, "\r\n"...)
	switch {
	case size < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case size > 0 || method != http.MethodGet && method != http.MethodHead:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, size, 10)
		b = append(b, "\r\n"...)
	}
	b, err := appendFields(b, r.Header, false, private)
	if err != nil {
		return nil, err
	}
	return append(b, "\r\n"...), nil
}

// receive reads the head of the answer, and sets up its body.
func (x *exchange) receive() error {
	a := &x.answer
	h, err := x.in.response(a)
	if err != nil {
		return err
	}
	a.Request = x.request
	a.ContentLength = h.length
	if x.request.Method == http.MethodHead || bodyless(a.StatusCode) {
		a.ContentLength = max(h.length, 0)
		h.length, h.chunked = 0, false
	}
	if h.length == 0 {
		if err := x.in.end(); err != nil {
			return err
		}
		a.ContentLength = max(a.ContentLength, 0)
		a.Body = http.NoBody
		x.finish()
		return nil
	}
	if h.length < 0 && !h.chunked {
		return Malformed("a response without a length")
	}
	x.in.body = body{chunked: h.chunked, left: max(h.length, 0)}
	if h.events {
		x.in.events = newPieces()
	}
	a.Body = (*answerBody)(x)
	return nil
}

// bodyless reports whether a response of this status never has a body, RFC 9110
// §6.4.1.
func bodyless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusNotModified
}

// answerBody is an exchange as the body of its answer.
type answerBody exchange

// Read implements io.Reader. It returns available bytes, and waits only if there are none.
func (b *answerBody) Read(p []byte) (int, error) {
	x := (*exchange)(b)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return 0, x.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := x.in.readBody(p)
	if err != nil {
		if err != io.EOF {
			x.cancel()
			err = x.explain(err)
		}
		x.err = err
		x.finish()
	}
	return n, err
}

// errBodyClosed is returned by Read after Close.
var errBodyClosed = errors.New("reading a closed body")

// Close implements io.Closer. Before the end of the body it cancels the
// request. It may run concurrently with a Read, which then fails.
func (b *answerBody) Close() error {
	x := (*exchange)(b)
	if x.finished.Load() {
		return nil
	}
	x.cancel() // without the lock, which a waiting Read holds
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = errBodyClosed
	}
	x.finish()
	return nil
}
