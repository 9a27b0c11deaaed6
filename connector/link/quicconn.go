package link

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

// QUICGateway returns the gateway's end of a QUIC connection as a [Conn].
func QUICGateway(conn *quic.Conn) Conn { return &quicConn{conn: conn, gateway: true} }

// QUICConnector returns the connector's end of a QUIC connection as a [Conn].
func QUICConnector(conn *quic.Conn) Conn { return &quicConn{conn: conn} }

// quicConn adds nothing to what QUIC does: its streams are quic-go's own.
type quicConn struct {
	conn    *quic.Conn
	gateway bool
}

var _ Conn = (*quicConn)(nil)

// TryOpenStream implements [Conn].
func (c *quicConn) TryOpenStream() (Stream, error) {
	stream, err := c.conn.OpenStream()
	if err != nil {
		var full *quic.StreamLimitReachedError
		if errors.As(err, &full) {
			err = ErrNoCredit
		}
		return nil, err
	}
	return stream, nil
}

// OpenStream implements [Conn].
func (c *quicConn) OpenStream(ctx context.Context) (Stream, error) {
	stream, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// AcceptStream implements [Conn].
func (c *quicConn) AcceptStream(ctx context.Context) (Stream, error) {
	stream, err := c.conn.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// Control implements [Conn]. It is the only stream that a connector opens.
func (c *quicConn) Control(ctx context.Context) (ControlStream, error) {
	open := c.conn.OpenStreamSync
	if c.gateway {
		open = c.conn.AcceptStream
	}
	stream, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// Close implements [Conn].
func (c *quicConn) Close(code CloseCode, why string) error {
	return c.conn.CloseWithError(quic.ApplicationErrorCode(code), why)
}

// Context implements [Conn].
func (c *quicConn) Context() context.Context { return c.conn.Context() }

// RemoteAddr implements [Conn].
func (c *quicConn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// RTT implements [Conn].
func (c *quicConn) RTT() time.Duration { return c.conn.ConnectionStats().SmoothedRTT }

// Transport implements [Conn].
func (c *quicConn) Transport() string { return TransportQUIC }
