package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/quic-go/quic-go"
)

// Code is the reason for resetting a request's stream. It is sent as the error code of
// RESET_STREAM and STOP_SENDING (RFC 9000 §19.4, §19.5).
type Code uint64

// The reset codes. Their values are part of the protocol.
const (
	// CodeNone stops a request body whose rest is not needed. The answer is still
	// complete.
	CodeNone Code = 0
	// CodeCancelled: the client disconnected, or the request's context ended.
	CodeCancelled Code = 1
	// CodeUpstreamDown: the upstream cannot be reached, and has not seen the request.
	CodeUpstreamDown Code = 2
	// CodeUpstreamReset: the upstream failed before or during its answer.
	CodeUpstreamReset Code = 3
	// CodeRefused: the path or the upstream is not allowed.
	CodeRefused Code = 4
	// CodeTooLarge: the request is larger than the connector allows.
	CodeTooLarge Code = 5
	// CodeDraining: the connector is draining, and has not processed the request.
	CodeDraining Code = 6
	// CodeInternal: an internal error of the sender, or a protocol violation by the
	// receiver.
	CodeInternal Code = 7
	// CodeBusy: the connector has no memory for the request, and has not processed it.
	CodeBusy Code = 8
	// CodeUnknownBlock: the body refers to a block that the connector no longer has (see
	// package blocks). The connector has not processed the request.
	CodeUnknownBlock Code = 9
	// CodeNoCredit: the connector has reached its limit of requests, and has not processed
	// this request. Only gateways send it, to peers.
	CodeNoCredit Code = 10
	// CodeTunnelLost: the tunnel ended during the request. Only gateways send it, to peers.
	CodeTunnelLost Code = 11
	// CodeUpstreamMalformed: the upstream's answer violates HTTP.
	CodeUpstreamMalformed Code = 12
	// CodeSilent: the connector has missed pings, and the answer has not begun.
	CodeSilent Code = 13
)

// Errors of [RoundTrip] and of reading an answer's body. Test with [errors.Is]. Unknown
// codes of newer programs are ErrInternal.
var (
	ErrCancelled     = errors.New("the other side canceled the request")
	ErrUpstreamDown  = errors.New("the upstream cannot be reached")
	ErrUpstreamReset = errors.New("the upstream failed before its answer was complete")
	// ErrUpstreamMalformed: the connector's log has the details.
	ErrUpstreamMalformed = errors.New("the upstream's answer is malformed")

	ErrRefused      = errors.New("the connector refused the request")
	ErrTooLarge     = errors.New("the request is too large for the connector")
	ErrDraining     = errors.New("the connector is draining")
	ErrInternal     = errors.New("the connector failed")
	ErrBusy         = errors.New("the connector has no memory for the request")
	ErrUnknownBlock = errors.New("the connector does not have a block of the request")

	// ErrNotSent: the request has not reached the connector's handler. It can be sent
	// again on another session. ErrDraining implies it.
	ErrNotSent = errors.New("the request was not sent")
	// ErrTunnelLost: the tunnel ended during the request.
	ErrTunnelLost = errors.New("the tunnel was lost")
	ErrSilent     = errors.New("the connector does not answer") // it may have received the request
	// ErrMalformed: the other side's message violates the protocol.
	ErrMalformed = errors.New("malformed message")
)

// codes are the names and errors of the reset codes.
var codes = [...]struct {
	name string
	err  error
}{
	CodeNone:          {"none", ErrInternal},
	CodeCancelled:     {"canceled", ErrCancelled},
	CodeUpstreamDown:  {"upstream_down", ErrUpstreamDown},
	CodeUpstreamReset: {"upstream_reset", ErrUpstreamReset},
	CodeRefused:       {"refused", ErrRefused},
	CodeTooLarge:      {"too_large", ErrTooLarge},
	CodeDraining:      {"draining", ErrDraining},
	CodeInternal:      {"internal", ErrInternal},
	CodeBusy:          {"busy", ErrBusy},
	CodeUnknownBlock:  {"unknown_block", ErrUnknownBlock},
	CodeNoCredit:      {"no_credit", ErrNoCredit},
	CodeTunnelLost:    {"tunnel_lost", ErrTunnelLost},

	CodeUpstreamMalformed: {"upstream_malformed", ErrUpstreamMalformed},
	CodeSilent:            {"silent", ErrSilent},
}

// String returns the code's name in snake_case, as in logs.
func (c Code) String() string {
	if c < Code(len(codes)) {
		return codes[c].name
	}
	return fmt.Sprintf("code_%d", uint64(c))
}

// Err returns the error for a reset with this code from the other side.
func (c Code) Err() error {
	switch {
	case c == CodeDraining:
		return errDrainingNotSent
	case c < Code(len(codes)):
		return codes[c].err
	default:
		return fmt.Errorf("%w (%s)", ErrInternal, c)
	}
}

// wire returns the code as quic-go's type.
func (c Code) wire() quic.StreamErrorCode { return quic.StreamErrorCode(c) }

// reset resets the write side of a stream. Data written so far still arrives, unless the code is
// CodeCancelled.
func reset(s Stream, code Code) {
	// quic-go panics at the next acknowledgement if a boundary is set after the other side has
	// stopped reading. It may still do so between this check and the call, but the panic also needs data
	// in transit.
	if code != CodeCancelled && s.Context().Err() == nil {
		s.SetReliableBoundary()
	}
	s.CancelWrite(code.wire())
}

// errDrainingNotSent is ErrDraining and ErrNotSent.
var errDrainingNotSent = fmt.Errorf("%w: %w", ErrNotSent, ErrDraining)

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
	var closed *quic.ApplicationError
	if errors.As(err, &closed) && closed.Remote {
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
	case errors.As(err, &reset) && reset.Remote:
		return Code(reset.ErrorCode).Err()
	case errors.Is(err, net.ErrClosed): // true for all connection errors of quic-go
		return fmt.Errorf("%w: %w", ErrTunnelLost, err)
	default:
		return err
	}
}
