package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// goodbyeTimeout is how long the other side of a closed connection has to read
// why.
const goodbyeTimeout = time.Second

var errSecondConnection = errors.New("a WebSocket carries one connection")

// WebSocketGateway makes the gateway's end of a tunnel over a WebSocket that a
// connector opened. ctx bounds the time until it returns; life returns the
// connection's context, made of quic-go's. If it fails, raw is closed.
func WebSocketGateway(ctx context.Context, raw net.Conn, config *tls.Config, life func(context.Context) context.Context) (*Conn, error) {
	var begun atomic.Bool
	p := newPackets(raw)
	transport := &quic.Transport{Conn: p, ConnContext: func(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
		if begun.Swap(true) {
			return nil, errSecondConnection
		}
		return life(ctx), nil
	}}
	settings := GatewayQUIC()
	settings.InitialPacketSize = packetBytes
	listener, err := transport.Listen(config, settings)
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("preparing QUIC: %w", err)
	}
	conn, err := listener.Accept(ctx)
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("shaking hands with a connector: %w", err)
	}
	_ = listener.Close() // it has two goroutines
	return p.carry(conn, true), nil
}

// WebSocketConnector makes the connector's end of a tunnel over a WebSocket to the
// gateway. ctx bounds the time until it returns. If it fails, raw is closed.
func WebSocketConnector(ctx context.Context, raw net.Conn, config *tls.Config, settings *quic.Config) (*Conn, error) {
	p := newPackets(raw)
	settings.InitialPacketSize = packetBytes
	conn, err := (&quic.Transport{Conn: p}).Dial(ctx, p.remote, config, settings)
	if err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("shaking hands with the gateway: %w", err)
	}
	return p.carry(conn, false), nil
}

// carry returns the connection on the stream, which is closed when that has ended.
// The side that has read why closes first: the other one might drop that otherwise.
func (p *packets) carry(conn *quic.Conn, gateway bool) *Conn {
	context.AfterFunc(conn.Context(), func() {
		if _, remote := CloseReason(context.Cause(conn.Context())); !remote {
			select {
			case <-p.broken:
			case <-time.After(goodbyeTimeout):
			}
		}
		_ = p.Close()
	})
	return &Conn{Conn: conn, gateway: gateway, packets: p}
}
