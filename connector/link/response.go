package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// errAborted is returned by writes after Abort.
var errAborted = errors.New("the answer was aborted")

// response is the response writer of one request, see [Serve]. Its handler uses it from one
// goroutine at a time.
type response struct {
	stream Stream
	header http.Header
	isHead bool // the request is a HEAD

	status   int
	discards bool          // the answer has no body; writes are dropped
	left     int64         // bytes that the Content-Length promises; -1: chunked
	out      *bufio.Writer // what was not sent yet; nil: nothing
	begun    bool          // a part was sent
	err      error         // of the first failed write, or of Abort
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter. Informational responses are
// ignored. Invalid fields, and those of the protocol, are dropped.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || w.err != nil || status >= 100 && status <= 199 {
		return
	}
	w.status, w.left = status, -1
	w.discards = w.isHead || status == http.StatusNoContent || status == http.StatusNotModified
	lengths := w.header["Content-Length"]
	for _, length := range lengths {
		n, err := strconv.ParseUint(length, 10, 63)
		if w.left = int64(n); err != nil || len(lengths) > 1 {
			status = 0
		}
	}
	if status < 200 || status > 999 {
		w.Abort(ErrInternal)
		return
	}
	out := w.buffer()
	fmt.Fprintf(out, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	header, _ := passed(w.header, true, own)
	_ = header.Write(out)
	switch {
	case status == http.StatusNoContent: // RFC 9110 §8.6: no Content-Length
	case w.left >= 0:
		fmt.Fprintf(out, "Content-Length: %d\r\n", w.left)
	case !w.discards:
		_, _ = out.WriteString("Transfer-Encoding: chunked\r\n")
	}
	_, _ = out.WriteString("\r\n")
}

// Write implements http.ResponseWriter. It sends p at once, with one write to the stream for up to 32 KiB. The
// last bytes of a small body of known length are sent when the handler returns.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case w.discards || len(p) == 0:
		return len(p), nil
	case w.left >= 0 && int64(len(p)) > w.left:
		return 0, http.ErrContentLength
	}
	out := w.buffer()
	if w.left < 0 {
		_, _ = out.Write(append(strconv.AppendInt(out.AvailableBuffer(), int64(len(p)), 16), "\r\n"...))
		_, _ = out.Write(p)
		_, _ = out.WriteString("\r\n")
		return len(p), w.flush()
	}
	_, _ = out.Write(p)
	if w.left -= int64(len(p)); w.left > 0 {
		return len(p), w.flush()
	}
	return len(p), nil
}

// buffer returns the buffer of the next write. Its errors are those of flush.
func (w *response) buffer() *bufio.Writer {
	if w.out == nil {
		w.out = getWriter((*answerWriter)(w))
	}
	return w.out
}

// answerWriter is a response as the writer of its bytes.
type answerWriter response

// Write implements io.Writer.
func (a *answerWriter) Write(p []byte) (int, error) {
	a.begun = true
	return a.stream.Write(p)
}

// flush sends the buffer, and returns it to its pool.
func (w *response) flush() error {
	if w.out != nil {
		if err := w.out.Flush(); err != nil && w.err == nil {
			w.err = streamError(context.Background(), err)
		}
		w.release()
	}
	return w.err
}

// release drops the buffer.
func (w *response) release() {
	if w.out != nil {
		putWriter(w.out)
		w.out = nil
	}
}

// Flush implements http.Flusher.
func (w *response) Flush() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	_ = w.flush() // the next Write returns the error
}

// Abort ends the answer with a failure, once. All further writes fail. An answer of known length ends early
// if a part was sent. After ErrCancelled the request is reset.
func (w *response) Abort(f *Failure) {
	broken := w.err != nil
	if errors.Is(w.err, errAborted) {
		return
	}
	w.err = fmt.Errorf("%w: %w", errAborted, f)
	switch {
	case broken || f == ErrCancelled:
		w.release()
		Refuse(w.stream, CodeCancelled)
		return
	case !w.begun:
		w.release()
		fmt.Fprintf(w.buffer(), "HTTP/1.1 502 %s\r\n%s: %s\r\nContent-Length: 0\r\n\r\n",
			http.StatusText(http.StatusBadGateway), ErrorField, f.Name)
	case w.discards || w.left >= 0:
		w.release()
	default:
		fmt.Fprintf(w.buffer(), "0\r\n%s: %s\r\n\r\n", ErrorField, f.Name)
	}
	_ = w.flush()
	_ = w.stream.Close()
}

// StopReading stops the gateway from sending the rest of the request. Reads of its body fail.
func (w *response) StopReading() { stopReading(w.stream, CodeNone) }

// finish ends the answer after the handler has returned.
func (w *response) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil || w.discards:
	case w.left > 0:
		w.Abort(ErrInternal)
		return fmt.Errorf("the handler wrote too little: %w", w.err)
	case w.left < 0:
		_, _ = w.buffer().WriteString("0\r\n\r\n")
	}
	if err := w.flush(); err != nil {
		if !errors.Is(err, errAborted) {
			w.stream.CancelWrite(CodeCancelled.wire())
		}
		return err
	}
	if err := w.stream.Close(); err != nil {
		// The gateway had stopped reading.
		return streamError(context.Background(), context.Cause(w.stream.Context()))
	}
	return nil
}
