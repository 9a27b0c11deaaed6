package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

// The names of the transports, as [Conn.Transport] has them.
const (
	TransportQUIC      = "quic"
	TransportWebSocket = "websocket"
)

// ErrNoCredit: the connector has as many requests as it takes at once. Nothing
// was sent to it.
var ErrNoCredit = errors.New("the connector takes no further requests at the moment")

// Conn is the connection under a tunnel: QUIC, or HTTP/2 inside TLS inside a
// WebSocket where UDP is blocked. Its methods may be called from any goroutine.
type Conn interface {
	// TryOpenStream begins a request, at the gateway. It fails with
	// [ErrNoCredit] if it would have to wait until the connector allows a stream.
	TryOpenStream() (Stream, error)
	// OpenStream begins a request, at the gateway, and waits until it may.
	OpenStream(ctx context.Context) (Stream, error)
	// AcceptStream waits for the next request, at the connector.
	AcceptStream(ctx context.Context) (Stream, error)
	// Control returns the control stream, once. The gateway waits for the
	// connector's first bytes on it, or for the connector.
	Control(ctx context.Context) (ControlStream, error)
	// Close ends the connection and all of its streams, and sends the other
	// side the code. It does not wait, and drops what is still queued on a stream.
	Close(code CloseCode, why string) error
	// Context ends with the connection. Its cause says why: see [CloseReason],
	// [Silent] and [Restarted].
	Context() context.Context
	RemoteAddr() net.Addr
	// RTT is the time of a packet's way to the other side and back, 0 as long
	// as it is not known.
	RTT() time.Duration
	Transport() string // TransportQUIC or TransportWebSocket
}

// ControlStream carries the control messages of a tunnel.
type ControlStream interface {
	io.ReadWriteCloser
	// The deadlines are for giving up: after one has passed, the stream is
	// unusable.
	SetDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// CloseError is the cause of the end of a connection that was closed with a
// code, other than over QUIC, whose own error is *quic.ApplicationError.
type CloseError struct {
	Code   CloseCode
	Why    string
	Remote bool // the other side closed it
}

// Error implements error.
func (e *CloseError) Error() string {
	side := "this side"
	if e.Remote {
		side = "the other side"
	}
	if e.Why == "" {
		return fmt.Sprintf("%s closed the tunnel: %s", side, e.Code)
	}
	return fmt.Sprintf("%s closed the tunnel: %s (%s)", side, e.Code, e.Why)
}

// Unwrap makes the end of a connection what it is to all network code.
func (e *CloseError) Unwrap() error { return net.ErrClosed }

// lostError is the end of a connection that was not closed.
type lostError struct {
	err    error
	silent bool
}

// Error implements error.
func (e *lostError) Error() string { return fmt.Sprintf("the connection broke: %v", e.err) }

// Unwrap makes the end of a connection what it is to all network code.
func (e *lostError) Unwrap() []error { return []error{net.ErrClosed, e.err} }

// resetError is the reset of a stream with a code by the other side, other than
// over QUIC, whose own error is *quic.StreamError.
type resetError Code

// Error implements error.
func (e resetError) Error() string { return "the stream was reset: " + Code(e).String() }

// Silent reports whether a connection ended because nothing came from the
// other side for too long.
func Silent(err error) bool {
	var idle *quic.IdleTimeoutError
	var lost *lostError
	return errors.As(err, &idle) || errors.As(err, &lost) && lost.silent
}

// Restarted reports whether a connection ended because the other side was restarted,
// and does not know it.
func Restarted(err error) bool {
	var reset *quic.StatelessResetError
	return errors.As(err, &reset)
}
