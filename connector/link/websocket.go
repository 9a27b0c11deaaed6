package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// goodbyeTimeout is how long the other side of a closed connection has to read the reason.
const goodbyeTimeout = time.Second

var errSecondConnection = errors.New("a WebSocket carries one connection")

// webSocket is the byte stream of a WebSocket.
type webSocket struct {
	net.Conn
	remote   net.Addr
	closeNow func() error
}

// NewWebSocket returns the byte stream of a WebSocket, for [WebSocketGateway] and
// [WebSocketConnector]. remote may be the address from a trusted proxy. closeNow is called
// once, and does not wait for the other side, which QUIC has already notified.
func NewWebSocket(stream net.Conn, remote net.Addr, closeNow func() error) net.Conn {
	return &webSocket{stream, remote, sync.OnceValue(closeNow)}
}

// RemoteAddr implements [net.Conn].
func (s *webSocket) RemoteAddr() net.Addr { return s.remote }

// Close implements [net.Conn].
func (s *webSocket) Close() error { return s.closeNow() }

// WebSocketGateway creates the gateway's end of a tunnel over a connector's WebSocket. ctx
// bounds the handshake. life derives the connection's context from quic-go's. On an error,
// raw is closed.
func WebSocketGateway(ctx context.Context, raw net.Conn, config *tls.Config,
	life func(context.Context) context.Context,
) (*Conn, error) {
	var accepted atomic.Bool
	p := newPackets(raw)
	transport := &quic.Transport{
		Conn: p,
		ConnContext: func(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
			if accepted.Swap(true) {
				return nil, errSecondConnection
			}
			return life(ctx), nil
		},
	}
	settings := GatewayQUIC()
	listener, err := transport.Listen(config, settings)
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("preparing QUIC: %w", err)
	}
	conn, err := listener.Accept(ctx)
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("handshake with a connector: %w", err)
	}
	_ = listener.Close() // ends its two goroutines
	return p.carry(conn), nil
}

// WebSocketConnector creates the connector's end of a tunnel over a WebSocket to the
// gateway. ctx bounds the handshake. On an error, raw is closed.
func WebSocketConnector(ctx context.Context, raw net.Conn, config *tls.Config, settings *quic.Config) (*Conn, error) {
	p := newPackets(raw)
	conn, err := (&quic.Transport{Conn: p}).Dial(ctx, p.remote, config, settings)
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("handshake with the gateway: %w", err)
	}
	return p.carry(conn), nil
}

// carry returns the connection on the stream, and closes the stream after the connection.
// The side that receives the close code closes first, so that the code is not lost.
func (p *packets) carry(conn *quic.Conn) *Conn {
	context.AfterFunc(conn.Context(), func() {
		if _, remote := CloseReason(context.Cause(conn.Context())); !remote {
			select {
			case <-p.broken:
			case <-time.After(goodbyeTimeout):
			}
		}
		_ = p.Close()
	})
	return &Conn{Conn: conn, packets: p}
}
