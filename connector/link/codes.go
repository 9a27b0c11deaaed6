package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/quic-go/quic-go"
)

// Code is the reason for resetting a request's stream. It is sent as the error code of
// RESET_STREAM and STOP_SENDING (RFC 9000 §19.4, §19.5). A connector only resets requests whose client
// has left: other errors are a [Failure].
type Code uint64

// The reset codes. Their values are part of the protocol.
const (
	// CodeNone stops a message whose rest is not needed.
	CodeNone Code = 0
	// CodeCancelled: the client disconnected, or the request's context ended.
	CodeCancelled Code = 1
	// CodeSilent: the connector has missed pings, and the answer has not begun.
	CodeSilent Code = 13
)

// Failure is why a connector sends no complete answer: an error of [RoundTrip] and of reading an answer's
// body. Its name is the header Postern-Error, or the trailer after the head was sent.
type Failure struct {
	Name string // in snake_case, as in logs
	text string
}

// Error implements error.
func (f *Failure) Error() string { return f.text }

// The failures. Their names are part of the protocol. Unknown ones of newer programs are ErrInternal. No model
// server has seen a request after ErrUpstreamDown, ErrRefused, ErrTooLarge, ErrBusy and ErrUnknownBody.
var (
	// ErrCancelled is sent as a reset with CodeCancelled.
	ErrCancelled     = &Failure{"canceled", "the other side canceled the request"}
	ErrUpstreamDown  = &Failure{"upstream_down", "the upstream cannot be reached"}
	ErrUpstreamReset = &Failure{"upstream_reset", "the upstream failed before its answer was complete"}
	// ErrUpstreamMalformed: the connector's log has the details.
	ErrUpstreamMalformed = &Failure{"upstream_malformed", "the upstream's answer is malformed"}

	ErrRefused     = &Failure{"refused", "the connector refused the request"}
	ErrTooLarge    = &Failure{"too_large", "the request is too large for the connector"}
	ErrInternal    = &Failure{"internal", "the connector failed"}
	ErrBusy        = &Failure{"busy", "the connector has no memory for the request"}
	ErrUnknownBody = &Failure{"unknown_body", "the connector does not have the body to which the request refers"}
)

var failures = [...]*Failure{
	ErrUpstreamDown, ErrUpstreamReset, ErrUpstreamMalformed, ErrRefused, ErrTooLarge, ErrInternal, ErrBusy,
	ErrUnknownBody,
}

// failure returns the failure in the header or the trailer of an answer, or nil.
func failure(h http.Header) error {
	names, ok := h[ErrorField]
	if !ok {
		return nil
	}
	for _, f := range failures {
		if f.Name == names[0] {
			return f
		}
	}
	return ErrInternal
}

// Other errors of [RoundTrip] and of reading an answer's body. Test with [errors.Is].
var (
	// ErrNotSent: the request has not reached the connector's handler. It can be sent
	// again on another session.
	ErrNotSent = errors.New("the request was not sent")
	// ErrNoCredit: the connector allows no further streams. Nothing was sent to it.
	ErrNoCredit = errors.New("the connector accepts no further requests at the moment")
	// ErrTunnelLost: the tunnel ended during the request.
	ErrTunnelLost = errors.New("the tunnel was lost")
	ErrSilent     = errors.New("the connector does not answer") // it may have received the request
	// ErrMalformed: the other side's message violates the protocol.
	ErrMalformed = errors.New("malformed message")
)

// Err returns the error for a reset with this code.
func (c Code) Err() error {
	switch c {
	case CodeCancelled:
		return ErrCancelled
	case CodeSilent:
		return ErrSilent
	}
	return ErrInternal
}

// wire returns the code as quic-go's type.
func (c Code) wire() quic.StreamErrorCode { return quic.StreamErrorCode(c) }

// CloseCode is the reason for closing a tunnel. It is sent as the application error code
// of CONNECTION_CLOSE (RFC 9000 §19.19).
type CloseCode uint64

// The close codes. Their values are part of the protocol.
const (
	// CloseNone: the connector ended the tunnel without a special reason.
	CloseNone CloseCode = 0
	// CloseReplaced: the same connector sent a hello on a newer tunnel.
	CloseReplaced CloseCode = 1
	// CloseRemoved: the connector was removed; its token is invalid.
	CloseRemoved CloseCode = 2
	// CloseShutdown: the gateway shuts down or restarts; reconnect.
	CloseShutdown CloseCode = 3
	// CloseDenied: the hello was refused.
	CloseDenied CloseCode = 4
	// CloseProtocol: the other side violated the protocol, or sent no hello in time.
	CloseProtocol CloseCode = 5
	// CloseDrained: the connector's drain is complete.
	CloseDrained CloseCode = 6
	// CloseLost: nothing was received from the other side for too long.
	CloseLost CloseCode = 7
)

var closeNames = [...]string{
	CloseNone:     "closed",
	CloseReplaced: "replaced",
	CloseRemoved:  "removed",
	CloseShutdown: "shutdown",
	CloseDenied:   "denied",
	CloseProtocol: "protocol_error",
	CloseDrained:  "drained",
	CloseLost:     "lost",
}

// String returns the code's name in snake_case, as in logs.
func (c CloseCode) String() string {
	if c < CloseCode(len(closeNames)) {
		return closeNames[c]
	}
	return fmt.Sprintf("close_%d", uint64(c))
}

// CloseReason returns the code with which the other side closed the tunnel. It returns
// false if err has another cause, such as a broken path.
func CloseReason(err error) (CloseCode, bool) {
	if closed, ok := errors.AsType[*quic.ApplicationError](err); ok && closed.Remote {
		return CloseCode(closed.ErrorCode), true
	}
	return 0, false
}

// streamError converts an error of a stream to this package's errors. If the request's
// context has ended, it returns the cause of that.
func streamError(ctx context.Context, err error) error {
	var reset *quic.StreamError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case errors.As(err, &reset) && (reset.Remote || Code(reset.ErrorCode) == CodeSilent):
		return Code(reset.ErrorCode).Err()
	case errors.Is(err, net.ErrClosed): // true for all connection errors of quic-go
		return fmt.Errorf("%w: %w", ErrTunnelLost, err)
	default:
		return err
	}
}
