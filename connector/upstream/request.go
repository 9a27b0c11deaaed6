package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"strings"
	"sync/atomic"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// upstreamRequest is one request and its answer on a connection, which it owns until it is closed.
type upstreamRequest struct {
	conn      *connection
	upload    *upload
	unwatch   func() bool
	in        *bufio.Reader // buffers Read
	remaining int64         // bytes that may still be read
	readError error         // of the connection, once it has failed
	complete  bool          // the answer was read to its end
	closes    bool          // client or server have announced that they close the connection
	reading   atomic.Bool   // send reads the rest of the body
	closed    atomic.Bool   // close stops the body

	written   chan struct{} // closed after the last write
	sent      int           // bytes of the request; valid after written
	wholeSent bool          // the whole request was sent; valid after written
	bodyError error         // of the request's body; valid after written
	panicked  *panics.Error // of the goroutine that writes; valid after written
}

// begin sends the request on a connection. The end of ctx closes it.
func begin(ctx context.Context, conn *connection, up *upload) *upstreamRequest {
	x := &upstreamRequest{
		// Some servers ignore the body of a GET, or answer HEAD with one: bytes would be left on the connection.
		conn: conn, upload: up, closes: up.asksClose || up.method != http.MethodPost,
		remaining: link.MaxAnswerHead, written: make(chan struct{}),
	}
	x.unwatch = context.AfterFunc(ctx, x.shut)
	x.in = bufio.NewReader(x)
	if up.left == 0 {
		x.send()
	} else {
		go x.send() // the server may answer before it has read all of it
	}
	return x
}

// send writes the request. If that fails after the first byte, the server may have answered early: receive then reads
// the answer or the error. If no byte was written, or the body fails, send closes the connection.
func (x *upstreamRequest) send() {
	defer close(x.written)
	defer func() {
		if x.sent > 0 {
			x.upload.release() // it is not sent again
		}
		if x.panicked = panics.Caught(recover()); x.panicked != nil || x.sent == 0 {
			x.shut()
		}
	}()
	for piece := x.upload.first; ; {
		n, err := x.conn.Write(piece)
		x.sent += n
		if x.wholeSent = err == nil && x.upload.left == 0; err != nil || x.wholeSent {
			return
		}
		if x.reading.Store(true); x.closed.Load() {
			return
		}
		if n, err = x.upload.next(*x.upload.chunk, 1); err != nil {
			if !x.closed.Load() {
				x.bodyError = err
			}
			x.shut()
			return
		}
		piece = (*x.upload.chunk)[:n]
	}
}

// Read reads from the connection.
func (x *upstreamRequest) Read(b []byte) (int, error) {
	if x.remaining == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := x.conn.Read(b[:min(int64(len(b)), x.remaining)])
	x.remaining -= int64(n)
	if err != nil && x.readError == nil {
		if x.readError = err; err == io.EOF {
			x.readError = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// receive reads the head of the answer. It skips informational answers. On an error it closes
// the connection. The error wraps ErrNotConnected if no byte of the request was sent.
func (x *upstreamRequest) receive() (a *modelAnswer, err error) {
	defer func() {
		if a == nil && err == nil { // after a panic
			x.close()
		}
	}()
	request := &http.Request{Method: x.upload.method}
	for range link.MaxInformational {
		response, err := http.ReadResponse(x.in, request) //nolint:bodyclose // the body reads from x, which is closed
		if err == nil && response.StatusCode < 200 && response.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		if err == nil {
			err = checkHead(response)
		} else {
			err = x.answerError(err)
		}
		if err != nil {
			return nil, x.failed(err)
		}
		x.remaining = math.MaxInt64
		a := newAnswer(response, x)
		// llama.cpp closes the connection of a stream, although it announces to keep it.
		x.closes = x.closes || response.Close || a.isStream()
		return a, nil
	}
	return nil, x.failed(link.Malformed("too many informational answers"))
}

// failed closes the connection, and returns why: a fault of the request's body, or err. It adds ErrNotConnected if
// nothing was sent.
func (x *upstreamRequest) failed(err error) error {
	x.close()
	if x.sent == 0 && !errors.Is(err, link.ErrMalformed) {
		return fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	return cmp.Or(x.bodyError, err)
}

// close returns the connection to its pool if nothing is left of the request, or closes it. Afterwards the request's
// body is not read, so its memory can be released.
func (x *upstreamRequest) close() {
	running := x.unwatch()
	select {
	case <-x.written:
		if running && x.complete && x.wholeSent && !x.closes && x.in.Buffered() == 0 {
			x.complete = false // for another close
			x.conn.pool.put(x.conn)
			return
		}
	default:
	}
	if x.complete {
		x.conn.close()
	}
	x.closed.Store(true)
	x.shut()
	if x.reading.Load() { // else another connection may need the body
		x.upload.stop()
	}
	<-x.written // soon
	if x.panicked != nil {
		panic(x.panicked)
	}
}

// shut closes the connection at once; closing TLS waits to send an alert. It is safe for
// concurrent use.
func (x *upstreamRequest) shut() { _ = x.conn.raw.Close() }

// answerError returns why net/http failed to read the answer. Unless the connection failed, the
// answer is malformed.
func (x *upstreamRequest) answerError(err error) error {
	switch {
	case x.readError != nil:
		return x.readError
	case x.remaining == 0:
		return link.Malformed(fmt.Sprintf("the head is over %d bytes", link.MaxAnswerHead))
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok { // its text may contain bytes of the answer
		return link.Malformed("a header line is malformed")
	}
	// net/http quotes bytes of the answer, which may be secret.
	problem, _, _ := strings.Cut(err.Error(), `"`)
	return link.Malformed(strings.TrimSpace(problem))
}

// checkHead returns an error for an answer that net/http accepts, but the gateway does not.
func checkHead(response *http.Response) error {
	fields := 0
	for _, values := range response.Header {
		fields += len(values)
	}
	switch {
	case response.ProtoMajor != 1:
		return link.Malformed("the version of the protocol")
	case response.StatusCode == http.StatusSwitchingProtocols:
		return link.Malformed("it switches protocols")
	case fields > link.MaxFields:
		return link.Malformed(fmt.Sprintf("the head has over %d fields", link.MaxFields))
	}
	return nil
}

// modelAnswer is an answer whose head was read.
type modelAnswer struct {
	*http.Response
	request *upstreamRequest
	endless bool   // events without a length and chunks: a cut would look like the end
	tail    []byte // the last bytes of an endless stream
}

// doneEvent ends the streams of OpenAI's API.
const doneEvent = "data: [DONE]"

func newAnswer(response *http.Response, x *upstreamRequest) *modelAnswer {
	a := &modelAnswer{Response: response, request: x}
	a.endless = a.isStream() && response.ContentLength < 0 && len(response.TransferEncoding) == 0 &&
		response.Body != http.NoBody
	return a
}

// Read reads available bytes of the answer's body. It returns io.EOF at the end of a
// complete answer, possibly with the last bytes.
func (a *modelAnswer) Read(b []byte) (int, error) {
	n, err := a.Body.Read(b)
	if a.endless {
		a.tail = append(a.tail, b[:n]...)
		a.tail = append(a.tail[:0], a.tail[max(len(a.tail)-2*len(doneEvent), 0):]...)
	}
	switch {
	case err == io.EOF && (!a.endless || bytes.HasSuffix(bytes.TrimSpace(a.tail), []byte(doneEvent))):
		a.request.complete = true
	case err != nil:
		err = a.request.failed(a.request.answerError(err))
	}
	return n, err
}

// isSilent reports whether the answer is an event stream without any event yet.
func (a *modelAnswer) isSilent() bool { return a.isStream() && a.request.in.Buffered() == 0 }

func (a *modelAnswer) isStream() bool { return link.HasMediaType(a.Header, "text/event-stream") }

// Close ends the request.
func (a *modelAnswer) Close() error {
	a.request.close()
	return nil
}
