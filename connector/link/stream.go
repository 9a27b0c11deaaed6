package link

import (
	"context"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
)

// Stream is the stream of one request, as both ends use it.
type Stream interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	// Close ends the write side cleanly; it must not run concurrently with a Write.
	Close() error
	CancelRead(quic.StreamErrorCode)
	CancelWrite(quic.StreamErrorCode)
	// SetReliableBoundary makes the data written so far arrive even after CancelWrite.
	SetReliableBoundary()
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	// Context ends with the write side, or when the peer stops reading.
	Context() context.Context
}

var _ Stream = (*quic.Stream)(nil)

// ResponseWriter is the response writer that [Serve] passes to its handler. The header is
// sent with the first bytes of the body, or at Flush. Each Write is one write to the
// stream.
type ResponseWriter interface {
	http.ResponseWriter
	http.Flusher
	// Abort resets the request. Data written so far still arrives, unless the code is
	// CodeCancelled. All further writes fail.
	Abort(Code)
}

// stopReading cancels the read side and unblocks a Read. CancelRead alone does not unblock
// a Read that waits for the data before a reset.
func stopReading(s Stream, code Code) {
	s.CancelRead(code.wire())
	_ = s.SetReadDeadline(time.Unix(1, 0))
}

// wire returns the code as quic-go's type.
func (c Code) wire() quic.StreamErrorCode { return quic.StreamErrorCode(c) }
