package link

import (
	"context"
	"errors"
	"time"

	"github.com/quic-go/quic-go"
)

// The results of [Conn.Transport].
const (
	TransportQUIC      = "quic"
	TransportWebSocket = "websocket"
)

// ErrNoCredit means that the connector has reached its limit of requests. Nothing was
// sent to it.
var ErrNoCredit = errors.New("the connector accepts no further requests at the moment")

// Conn is one end of the connection of a tunnel: QUIC over UDP, or over a WebSocket where
// UDP is blocked. It is safe for concurrent use.
//
// A request is a stream that the gateway opens. The cause of the connection's context is
// the reason for its end: see [CloseReason], [Silent], [Restarted].
type Conn struct {
	*quic.Conn
	gateway bool
	packets *packets // of a WebSocket
}

// QUICGateway returns the gateway's end of a QUIC connection over UDP.
func QUICGateway(conn *quic.Conn) *Conn { return &Conn{Conn: conn, gateway: true} }

// QUICConnector returns the connector's end of a QUIC connection over UDP.
func QUICConnector(conn *quic.Conn) *Conn { return &Conn{Conn: conn} }

// TryOpenStream opens the stream of a request, at the gateway. It fails with [ErrNoCredit]
// if the connector allows no further stream at the moment.
func (c *Conn) TryOpenStream() (*quic.Stream, error) {
	stream, err := c.OpenStream()
	if errors.As(err, new(*quic.StreamLimitReachedError)) {
		err = ErrNoCredit
	}
	return stream, err
}

// Control returns the control stream, the only one that a connector opens. On the gateway
// it waits for the connector's first bytes.
func (c *Conn) Control(ctx context.Context) (*quic.Stream, error) {
	if c.gateway {
		return c.AcceptStream(ctx)
	}
	return c.OpenStreamSync(ctx)
}

// Close closes the connection and all of its streams, and sends the code to the other
// side. It does not wait, and drops queued data.
func (c *Conn) Close(code CloseCode, why string) error {
	if c.packets != nil {
		c.packets.leave()
	}
	return c.CloseWithError(quic.ApplicationErrorCode(code), why)
}

// RTT returns the smoothed round-trip time, or 0 if it is unknown.
func (c *Conn) RTT() time.Duration { return c.ConnectionStats().SmoothedRTT }

// Transport returns TransportQUIC or TransportWebSocket.
func (c *Conn) Transport() string {
	if c.packets != nil {
		return TransportWebSocket
	}
	return TransportQUIC
}

// Silent reports whether a connection ended because nothing was received from the other
// side for too long.
func Silent(err error) bool { return errors.As(err, new(*quic.IdleTimeoutError)) }

// Restarted reports whether a connection ended by a stateless reset, as after a restart of
// the other side.
func Restarted(err error) bool { return errors.As(err, new(*quic.StatelessResetError)) }
