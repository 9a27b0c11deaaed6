package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// Secrets are the secrets of a gateway that must survive restarts.
type Secrets struct {
	// Identity is a key created by link.NewIdentity. Connectors pin it.
	Identity []byte
	// Reset is a random 32-byte key for stateless resets: after a restart with the
	// same key, connectors notice the restart at their next packet.
	Reset []byte
	// Token is a random 32-byte key for address validation tokens.
	Token []byte
}

const connectionIDBytes = 8

// Listen starts accepting connectors on conn and returns. The hub owns conn from
// then on. For full speed, conn must be a plain *net.UDPConn: a wrapper disables the
// batching of packets.
func (h *Hub) Listen(conn net.PacketConn, s Secrets) error {
	cert, pin, err := link.Identity(s.Identity)
	if err != nil {
		return fmt.Errorf("starting tunnel listener: %w", err)
	}
	if len(s.Reset) != len(quic.StatelessResetKey{}) || len(s.Token) != len(quic.TokenGeneratorKey{}) {
		return fmt.Errorf("starting tunnel listener: reset and token keys have %d and %d bytes, not 32", len(s.Reset), len(s.Token))
	}
	reset, token := quic.StatelessResetKey(s.Reset), quic.TokenGeneratorKey(s.Token)
	transport := &quic.Transport{
		Conn:                conn,
		ConnectionIDLength:  connectionIDBytes,
		StatelessResetKey:   &reset,
		TokenGeneratorKey:   &token,
		VerifySourceAddress: h.verify,
		ConnContext:         h.admit,
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing.Err() != nil || h.listener != nil {
		return fmt.Errorf("starting tunnel listener: %w, or is already listening", ErrClosed)
	}
	config := link.GatewayTLS(cert)
	paced := config.Clone()
	paced.GetConfigForClient = h.pace
	listener, err := transport.Listen(paced, link.GatewayQUIC())
	if err != nil {
		return fmt.Errorf("starting tunnel listener: %w", err)
	}
	h.conn, h.transport, h.listener, h.pin = conn, transport, listener, pin
	h.tls = config
	h.running.Go(func() { h.accept(listener) })
	return nil
}

// accept only starts goroutines: quic-go's accept queue holds 32 connections, and
// thousands may reconnect at once.
func (h *Hub) accept(l *quic.Listener) {
	for {
		conn, err := l.Accept(context.Background())
		if err != nil {
			return // closed
		}
		h.running.Go(func() { h.serve(&link.Conn{Conn: conn}) })
	}
}

// Addr returns the address that the hub listens on, nil before Listen.
func (h *Hub) Addr() net.Addr {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.conn == nil {
		return nil
	}
	return h.conn.LocalAddr()
}

// Pin returns the pin of the gateway's identity, "" before Listen.
func (h *Hub) Pin() string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.pin
}

// Close ends the hub. It rejects new connectors and requests at once, and sends
// connected connectors a drain. Running requests may finish until ctx ends. Then
// all tunnels and the socket are closed. Waiting devices are disconnected at once;
// they reconnect to the next gateway.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.closing.Err() != nil {
		h.mu.Unlock()
		return nil
	}
	h.stop()
	sessions, devices := slices.Collect(maps.Keys(h.all)), slices.Collect(maps.Keys(h.waiting))
	h.mu.Unlock()

	h.handshakes.Close()
	for _, w := range devices {
		w.end(link.CloseShutdown)
	}
	var draining sync.WaitGroup
	for _, s := range sessions {
		draining.Go(func() { s.shutdown(ctx) })
	}
	draining.Wait()
	h.closeSockets()
	return h.closeListener()
}

// closeListener undoes Listen. All sessions must be closed first: closing the
// transport sends them nothing.
func (h *Hub) closeListener() error {
	if h.listener == nil {
		return nil
	}
	_ = h.listener.Close()
	transportErr := h.transport.Close()
	if err := errors.Join(transportErr, h.conn.Close()); err != nil {
		return fmt.Errorf("closing tunnel listener: %w", err)
	}
	h.running.Wait()
	return nil
}
