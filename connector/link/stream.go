package link

import (
	"context"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"
)

// Stream is what both ends need of one request's stream.
type Stream interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	// Close ends the write side cleanly; it must not run concurrently with a Write.
	Close() error
	CancelRead(quic.StreamErrorCode)
	CancelWrite(quic.StreamErrorCode)
	// SetReliableBoundary lets what was written so far arrive even if
	// CancelWrite follows.
	SetReliableBoundary()
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	// Context ends with the write side: also when the peer stops
	// reading.
	Context() context.Context
}

var _ Stream = (*quic.Stream)(nil)

// ResponseWriter is what [Serve] gives to its handler. The header is sent with
// the first bytes of the body, or at Flush; each Write then is one write to the
// stream.
type ResponseWriter interface {
	http.ResponseWriter
	http.Flusher
	// Abort gives up on the request with a reset. What was written so far still
	// arrives, unless the code is CodeCancelled. All writes fail from then on.
	Abort(Code)
}

// stopReading cancels the read side, and wakes a Read. CancelRead alone does not
// wake one that waits for the rest of what was written before a reset.
func stopReading(s Stream, code Code) {
	s.CancelRead(code.wire())
	_ = s.SetReadDeadline(time.Unix(1, 0))
}

// wire returns the code as quic-go has it.
func (c Code) wire() quic.StreamErrorCode { return quic.StreamErrorCode(c) }
