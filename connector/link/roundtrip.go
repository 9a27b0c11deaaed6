package link

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/postern-dev/postern/connector/panics"
)

// RoundTrip sends r on a new stream and reads the head of the answer. It is the gateway's
// end of a request.
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
// error of this package: a [Failure], the error of a reset, [ErrTunnelLost] or [ErrMalformed].
func RoundTrip(ctx context.Context, s Stream, r *http.Request, done func()) (*http.Response, error) {
	x := &tunnelRequest{ctx: ctx, stream: s, in: newReader(s), done: done}
	if ctx.Done() != nil {
		x.unwatch = context.AfterFunc(ctx, x.cancel)
	}
	succeeded := false
	defer func() {
		if !succeeded { // after a panic, too
			x.cancel()
			x.finish()
		}
	}()
	if err := x.send(r); err != nil {
		return nil, err
	}
	if err := x.receive(r); err != nil {
		x.cancel()
		return nil, x.explain(err)
	}
	succeeded = true
	return x.answer, nil
}

// tunnelRequest is one request and its answer.
type tunnelRequest struct {
	ctx     context.Context
	stream  Stream
	done    func()
	unwatch func() bool // stops watching ctx; nil: not watching

	// uploaded is closed when a large body was sent or abandoned. It is nil for a small one. uploadErr is
	// the error of reading the body.
	uploaded  chan struct{}
	uploadErr error

	answer *http.Response
	body   io.Reader // of the answer, as net/http reads it

	finished atomic.Bool // finish has run

	mu  sync.Mutex // held by Read; guards the fields below
	in  *reader
	err error // what Read returns from now on
}

// cancel resets both directions; it is safe for concurrent use.
func (x *tunnelRequest) cancel() {
	stopReading(x.stream, CodeCancelled)
	x.stream.CancelWrite(CodeCancelled.wire())
}

// explain returns the cause of a stream's error. The stream must have been canceled. A panic of
// the upload is the caller's.
func (x *tunnelRequest) explain(err error) error {
	if x.uploaded != nil {
		<-x.uploaded // soon: its stream is reset
		if p, ok := errors.AsType[*panics.Error](x.uploadErr); ok {
			panic(p)
		}
		if x.uploadErr != nil {
			return x.uploadErr
		}
	}
	if err = x.in.fault(err); err == io.ErrUnexpectedEOF {
		err = ErrUpstreamReset
	}
	return streamError(x.ctx, err)
}

// finish releases the resources of the request, once. Both directions of the stream must
// have ended or been reset.
func (x *tunnelRequest) finish() {
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
func (x *tunnelRequest) send(r *http.Request) error {
	body := &requestBody{ReadCloser: r.Body}
	out, err := outgoing(r, body)
	if err != nil || out.ContentLength == 0 {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		if err != nil {
			return err
		}
	}
	if out.ContentLength >= 0 && out.ContentLength <= largeChunk {
		x.write(out, body)
		return x.uploadErr
	}
	x.uploaded = make(chan struct{})
	go func() {
		defer close(x.uploaded)
		defer func() {
			if p := panics.Caught(recover()); p != nil {
				x.uploadErr = p
				x.cancel()
			}
		}()
		x.write(out, body)
	}()
	return nil
}

// write writes the request, and ends the write side. After a failed write it only resets that side, as the
// connector may have stopped reading to answer early, such as with a 413. If the stream
// is lost, reading fails, too.
func (x *tunnelRequest) write(r *http.Request, body *requestBody) {
	out := getWriter(x.stream)
	defer putWriter(out)
	err := r.Write(unflushed{out})
	if _, failed := out.Write(nil); err != nil && failed == nil { // the stream is fine
		x.uploadErr = fmt.Errorf("reading the request's body: %w", cmp.Or(body.err, err))
		x.cancel()
		return
	}
	if out.Flush() != nil || x.stream.Close() != nil {
		x.stream.CancelWrite(CodeNone.wire())
	}
}

// unflushed hides from net/http that a writer can flush: it would send the head, and each chunk, alone.
type unflushed struct{ *bufio.Writer }

// requestBody is the body of a request that keeps its error.
type requestBody struct {
	io.ReadCloser
	err error
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// outgoing returns the request to an upstream, without hop-by-hop and private fields. The error names an
// invalid part, but never its value.
func outgoing(r *http.Request, body *requestBody) (*http.Request, error) {
	if err := CheckUpstream(cmp.Or(r.Host, r.URL.Host)); err != nil {
		return nil, fmt.Errorf("sending a request: %w", err)
	}
	if !httpguts.ValidHeaderFieldName(cmp.Or(r.Method, http.MethodGet)) || !isTarget(r.URL.RequestURI()) {
		return nil, fmt.Errorf("sending a request: %w: invalid method or path", ErrMalformed)
	}
	header, err := passed(r.Header, false, private)
	if err != nil {
		return nil, err
	}
	if header["User-Agent"] == nil {
		header["User-Agent"] = nil // not that of Go
	}
	out := &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: header, Body: http.NoBody}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		out.Body, out.ContentLength = body, r.ContentLength
	}
	if r.ContentLength < 0 && out.Body != http.NoBody {
		out.TransferEncoding = []string{"chunked"} // net/http would wait for the first byte of some bodies
	}
	return out, nil
}

// receive reads the head of the answer, and sets up its body.
func (x *tunnelRequest) receive(r *http.Request) (err error) {
	if x.answer, err = x.in.response(r); err != nil { //nolint:bodyclose // Close would read the rest
		return err
	}
	if err := failure(x.answer.Header); err != nil {
		return err
	}
	if x.answer.Body == http.NoBody {
		if err := x.in.end(); err != io.EOF {
			return err
		}
		x.finish()
		return nil
	}
	x.body, x.answer.Body = x.answer.Body, (*answerBody)(x)
	return nil
}

// answerBody is a tunnelRequest as the body of its answer.
type answerBody tunnelRequest

// Read implements io.Reader. It returns available bytes, and waits only if there are none.
func (b *answerBody) Read(p []byte) (int, error) {
	x := (*tunnelRequest)(b)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return 0, x.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := x.body.Read(p)
	if err == io.EOF {
		failed := failure(x.answer.Trailer)
		switch {
		case failed != nil:
			err = failed
		case n > 0 && !x.in.ended():
			return n, nil // the end may take a moment
		default:
			err = x.in.end()
		}
	}
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
	x := (*tunnelRequest)(b)
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
