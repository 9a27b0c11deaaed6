package link

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/postern-dev/postern/connector/panics"
)

// Serve serves the request on a stream with h, and returns after h. It is the connector's
// end of a request.
//
// The handler's [http.ResponseWriter] sends the header with the first bytes of the body, or at Flush. Its method
// Abort(*Failure) ends the answer with a failure, and StopReading() ends the request's body, and reads of it. The
// context of the request ends when the gateway cancels the request or the tunnel is lost. The end of the request does
// not end it.
//
// The error is the reason why no complete answer was sent, for logs: the failure passed to
// Abort, the code of the gateway's reset, a malformed request, or a [*panics.Error].
func Serve(s Stream, h http.Handler) (err error) {
	w, in, body := &response{stream: s}, newReader(s), io.ReadCloser(http.NoBody)
	defer func() {
		if v := recover(); v != nil {
			w.Abort(ErrInternal)
			if err = http.ErrAbortHandler; v != err {
				err = panics.Caught(v)
			}
		}
		w.release()
		w.StopReading()  // no effect after the end
		_ = body.Close() // waits for reads of other goroutines
		in.release()
	}()
	r, err := in.request()
	if err != nil {
		w.Abort(ErrInternal)
		return fmt.Errorf("receiving a request: %w", streamError(context.Background(), err))
	}
	w.isHead, body = r.Method == http.MethodHead, r.Body
	h.ServeHTTP(w, r.WithContext(s.Context()))
	return w.finish()
}

// Refuse resets both directions of a stream.
func Refuse(s Stream, code Code) {
	s.CancelRead(code.wire())
	s.CancelWrite(code.wire())
}
