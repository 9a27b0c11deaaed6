package link

import (
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
	discards bool  // the answer has no body; writes are dropped
	length   int64 // Content-Length; -1: chunked
	written  int64

	// pending delays the head until the first bytes of the body, and a small body until the
	// end of the stream.
	pending *buffer
	out     []byte // bytes in pending, or in a larger array if they outgrew it
	err     error  // of the first failed write, or of Abort

	events *pieces // of an event stream; nil for other answers
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter. Informational responses are
// ignored.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || w.err != nil || status >= 100 && status <= 199 {
		return
	}
	if status < 200 || status > 999 {
		w.Abort(CodeInternal)
		return
	}
	w.status = status
	w.discards = w.isHead || bodyless(status)
	if v := w.header["Content-Length"]; len(v) > 0 {
		n, ok := parseLength(v[0])
		if !ok || len(v) > 1 {
			w.Abort(CodeInternal)
			return
		}
		w.length = n
	}
	w.pending = getBuffer(smallBuffer)
	w.appendHead()
}

// appendHead puts the head into pending.
func (w *response) appendHead() {
	b := append(w.pending.array[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(w.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(w.status)...)
	b = append(b, "\r\n"...)
	switch {
	case w.status == http.StatusNoContent: // RFC 9110 §8.6: no Content-Length
	case w.length >= 0:
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, w.length, 10)
		b = append(b, "\r\n"...)
	case w.discards:
	case HasMediaType(w.header, "text/event-stream"):
		w.events = newPieces()
		b = append(b, "Transfer-Encoding: "+codingEvents+"\r\n"...)
	default:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	// Invalid fields of an upstream are dropped.
	b, _ = appendFields(b, w.header, true, noneSkipped)
	w.out = append(b, "\r\n"...)
}

// Write implements http.ResponseWriter with one write to the stream for up to 32 KiB. The
// last bytes of a small body of known length are sent when the handler returns.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case w.discards:
		return len(p), nil
	case len(p) == 0:
		return 0, nil
	case w.length >= 0:
		return w.writePlain(p)
	default:
		return w.writeChunks(p)
	}
}

// writePlain writes a part of a body of known length.
func (w *response) writePlain(p []byte) (int, error) {
	if int64(len(p)) > w.length-w.written {
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	last := w.written == w.length // sent with the end of the stream
	if (last || len(w.out) > 0) && len(w.out)+len(p) <= largeBuffer {
		w.grow(len(p))
		w.out = append(w.out, p...)
		if last {
			return len(p), nil
		}
		return len(p), w.send()
	}
	if err := w.send(); err != nil {
		return 0, err
	}
	n, err := w.stream.Write(p)
	w.err = streamError(context.Background(), err)
	return n, w.err
}

// writeChunks writes p as chunks of up to 32 KiB.
func (w *response) writeChunks(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		piece := p[n:min(len(p), n+largeChunk)]
		w.grow(len(piece) + 2*maxChunkLine)
		if w.events != nil {
			w.appendEvents(piece)
		} else {
			w.out = strconv.AppendUint(w.out, uint64(len(piece)), 16)
			w.out = append(w.out, "\r\n"...)
			w.out = append(w.out, piece...)
		}
		w.out = append(w.out, "\r\n"...)
		if err := w.send(); err != nil {
			return n, err
		}
		n += len(piece)
	}
	w.written += int64(n)
	return n, nil
}

// appendEvents appends a part of an event stream as a chunk, without its end.
func (w *response) appendEvents(p []byte) {
	begin := len(w.out)
	w.out = append(w.out, sizeLine...)
	w.out = w.events.appendRecords(w.out, p)
	setSize(w.out[begin:])
}

// grow enlarges pending for n more bytes.
func (w *response) grow(n int) {
	if w.pending == nil {
		w.pending = getBuffer(n)
		w.out = w.pending.array[:0]
		return
	}
	if n > cap(w.out)-len(w.out) && len(w.out)+n <= largeBuffer {
		larger := getBuffer(largeBuffer)
		w.out = append(larger.array[:0], w.out...)
		w.pending.put()
		w.pending = larger
	}
}

// send writes the pending bytes.
func (w *response) send() error {
	if w.err == nil && len(w.out) > 0 {
		if _, err := w.stream.Write(w.out); err != nil {
			w.err = streamError(context.Background(), err)
		}
	}
	w.release()
	return w.err
}

// release returns the buffer to its pool.
func (w *response) release() {
	w.pending.put()
	w.pending, w.out = nil, nil
}

// Flush implements http.Flusher.
func (w *response) Flush() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	_ = w.send() // the next Write returns the error
}

// Abort resets the request, once. All further writes fail.
func (w *response) Abort(code Code) {
	if errors.Is(w.err, errAborted) {
		return
	}
	w.err = fmt.Errorf("%w: %w", errAborted, code.Err())
	w.release()
	w.stream.CancelRead(code.wire())
	reset(w.stream, code)
}

// finish ends the answer after the handler has returned.
func (w *response) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.err == nil && w.length > w.written && !w.discards {
		w.Abort(CodeInternal)
		return fmt.Errorf("sending an answer of %d bytes: the handler wrote %d: %w", w.length, w.written, w.err)
	}
	if w.err == nil && w.length < 0 && !w.discards {
		w.grow(maxChunkLine)
		w.out = append(w.out, "0\r\n\r\n"...)
	}
	if err := w.send(); err != nil {
		w.stream.CancelWrite(CodeCancelled.wire())
		return err
	}
	if err := w.stream.Close(); err != nil {
		// The gateway had stopped reading.
		return streamError(context.Background(), context.Cause(w.stream.Context()))
	}
	return nil
}
