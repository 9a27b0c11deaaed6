package link

import (
	"context"
	"errors"
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

// Conn is one end of the connection under a tunnel: QUIC over UDP, or in a
// WebSocket where UDP is blocked. Its methods may be called from any goroutine.
//
// A request is a stream that the gateway opens. The cause of the end of its
// context says why the connection ended: see [CloseReason], [Silent], [Restarted].
type Conn struct {
	*quic.Conn
	gateway bool
	packets *packets // of a WebSocket
}

// QUICGateway returns the gateway's end of a QUIC connection over UDP.
func QUICGateway(conn *quic.Conn) *Conn { return &Conn{Conn: conn, gateway: true} }

// QUICConnector returns the connector's end of a QUIC connection over UDP.
func QUICConnector(conn *quic.Conn) *Conn { return &Conn{Conn: conn} }

// TryOpenStream begins a request, at the gateway. It fails with [ErrNoCredit] if
// it would have to wait until the connector allows a stream.
func (c *Conn) TryOpenStream() (*quic.Stream, error) {
	stream, err := c.OpenStream()
	if errors.As(err, new(*quic.StreamLimitReachedError)) {
		err = ErrNoCredit
	}
	return stream, err
}

// Control returns the control stream, the only one that a connector opens. The
// gateway waits for the connector's first bytes on it.
func (c *Conn) Control(ctx context.Context) (*quic.Stream, error) {
	if c.gateway {
		return c.AcceptStream(ctx)
	}
	return c.OpenStreamSync(ctx)
}

// Close ends the connection and all of its streams, and sends the other side the
// code. It does not wait, and drops what is still queued on a stream.
func (c *Conn) Close(code CloseCode, why string) error {
	if c.packets != nil {
		c.packets.leave()
	}
	return c.CloseWithError(quic.ApplicationErrorCode(code), why)
}

// RTT is the time of a packet's way to the other side and back, 0 as long as it
// is not known.
func (c *Conn) RTT() time.Duration { return c.ConnectionStats().SmoothedRTT }

// Transport is TransportQUIC or TransportWebSocket.
func (c *Conn) Transport() string {
	if c.packets != nil {
		return TransportWebSocket
	}
	return TransportQUIC
}

// Silent reports whether a connection ended because nothing came from the
// other side for too long.
func Silent(err error) bool { return errors.As(err, new(*quic.IdleTimeoutError)) }

// Restarted reports whether a connection ended because the other side was restarted,
// and does not know it.
func Restarted(err error) bool { return errors.As(err, new(*quic.StatelessResetError)) }
