package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/postern-dev/postern/connector/panics"
)

// Serve serves the request on a stream with h, and returns after h. It is the connector's
// end of a request.
//
// The handler's [http.ResponseWriter] sends the header with the first bytes of the body,
// or at Flush. It also has a method Abort(Code), which resets the request: data written so
// far still arrives, unless the code is CodeCancelled. The context of the request ends when
// the gateway cancels the request or the tunnel is lost.
//
// The error is the reason why no complete answer was sent, for logs: the code passed to
// Abort, the code of the gateway's reset, a malformed request, or a [*panics.Error].
func Serve(s Stream, h http.Handler) (err error) {
	x := &serving{stream: s}
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			Refuse(s, CodeInternal)
			err = p
		}
	}()
	x.in.stream = s
	text, err := x.in.head()
	if err == nil {
		err = x.begin(text)
	}
	if err != nil {
		x.in.release()
		Refuse(s, CodeInternal)
		return fmt.Errorf("receiving a request: %w", streamError(context.Background(), err))
	}
	err = x.run(h)
	x.close()
	return err
}

// Refuse resets both directions of a stream without reading the request.
func Refuse(s Stream, code Code) {
	s.CancelRead(code.wire())
	s.CancelWrite(code.wire())
}

// serving is one request at the connector, and the body of the request.
type serving struct {
	stream Stream
	out    response

	request *http.Request

	mu  sync.Mutex // held by Read; guards the fields below
	in  reader
	err error // what Read returns from now on
}

// begin creates the request from its head.
func (x *serving) begin(text string) error {
	r, h, err := parseRequest(text)
	if err != nil {
		return err
	}
	x.out = response{stream: x.stream, length: -1, isHead: r.Method == http.MethodHead}
	r.Body = http.NoBody
	if h.length > 0 || h.chunked {
		r.ContentLength = h.length
		r.Body = (*requestBody)(x)
		x.in.body = body{chunked: h.chunked, left: max(h.length, 0)}
	} else {
		x.err = io.EOF
	}
	x.request = r.WithContext(x.stream.Context())
	return nil
}

// run calls the handler and ends the answer.
func (x *serving) run(h http.Handler) (err error) {
	defer func() {
		if v := recover(); v != nil {
			x.out.Abort(CodeInternal)
			if err = http.ErrAbortHandler; v != err {
				err = panics.Caught(v)
			}
		}
		x.out.release()
		x.out.events.put()
	}()
	h.ServeHTTP(&x.out, x.request)
	return x.out.finish()
}

// close ends the read side: the rest of the request is not needed.
func (x *serving) close() {
	stopReading(x.stream, CodeNone) // no effect after the end
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = errBodyClosed
	}
	x.in.release()
}

// requestBody is a serving as the body of its request.
type requestBody serving

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	x := (*serving)(b)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return 0, x.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := x.in.readBody(p)
	if err != nil && err != io.EOF {
		err = streamError(context.Background(), err)
		if errors.Is(err, ErrInternal) {
			err = ErrCancelled // the gateway only resets canceled requests
		}
	}
	x.err = err
	return n, err
}

// Close implements io.Closer. The rest of the body is dropped when the handler
// returns.
func (b *requestBody) Close() error { return nil }
