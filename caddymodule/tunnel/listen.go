package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// identity is the identity that a hub proves to connectors.
type identity struct {
	cert tls.Certificate
	pin  string
}

func newIdentity(key []byte) (*identity, error) {
	cert, pin, err := link.Identity(key)
	return &identity{cert, pin}, err
}

// SetIdentity changes the key of the identity. If it differs from the present one, all tunnels are closed:
// the tokens of their connectors contain the former pin.
func (h *Hub) SetIdentity(key []byte) error {
	id, err := newIdentity(key)
	if err != nil {
		return fmt.Errorf("changing the tunnel identity: %w", err)
	}
	if former := h.identity.Swap(id); former == nil || former.pin == id.pin {
		return nil
	}
	h.mu.RLock()
	sessions := slices.Concat(slices.Collect(maps.Values(h.all))...)
	h.mu.RUnlock()
	for _, s := range sessions {
		s.refuse(denyIdentity)
	}
	return nil
}

// certificate returns the certificate for a handshake, and records its pin. It is called as GetCertificate.
func (h *Hub) certificate(info *tls.ClientHelloInfo) (*tls.Certificate, error) {
	id := h.identity.Load()
	pendingOf(info.Context()).pin = id.pin
	return &id.cert, nil
}

// Secrets are the secrets of a gateway that must survive restarts.
type Secrets struct {
	// Identity is the key that connectors pin, created by link.NewIdentity.
	Identity []byte
	// Reset is a random 32-byte key for stateless resets: after a restart with the
	// same key, connectors notice the restart at their next packet.
	Reset []byte
	// Token is a random 32-byte key for address validation tokens.
	Token []byte
}

const connectionIDBytes = 8

// Listen starts to accept connectors on conn and returns. The hub owns conn from
// then on. conn should be a plain *net.UDPConn: with a wrapper, quic-go does not batch packets.
func (h *Hub) Listen(conn net.PacketConn, s Secrets) error {
	id, err := newIdentity(s.Identity)
	if err != nil {
		return fmt.Errorf("starting tunnel listener: %w", err)
	}
	if len(s.Reset) != len(quic.StatelessResetKey{}) || len(s.Token) != len(quic.TokenGeneratorKey{}) {
		return fmt.Errorf("starting tunnel listener: reset and token keys have %d and %d bytes, not 32", len(s.Reset),
			len(s.Token))
	}
	reset, token := quic.StatelessResetKey(s.Reset), quic.TokenGeneratorKey(s.Token)
	transport := &quic.Transport{
		Conn:                conn,
		ConnectionIDLength:  connectionIDBytes,
		StatelessResetKey:   &reset,
		TokenGeneratorKey:   &token,
		VerifySourceAddress: h.verifySourceAddress,
		ConnContext:         h.admit,
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing.Err() != nil || h.listener != nil {
		return fmt.Errorf("starting tunnel listener: %w, or is already listening", ErrClosed)
	}
	h.identity.Store(id)
	config := link.GatewayTLS(tls.Certificate{})
	config.Certificates = nil // the identity may change
	config.GetCertificate = h.certificate
	paced := config.Clone()
	paced.GetConfigForClient = h.pace
	listener, err := transport.Listen(paced, link.GatewayQUIC())
	if err != nil {
		return fmt.Errorf("starting tunnel listener: %w", err)
	}
	h.conn, h.transport, h.listener = conn, transport, listener
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
		h.work("greeting a connector", func() { h.serve(&link.Conn{Conn: conn}) })
	}
}

// work runs f in a goroutine of the hub. A panic ends f alone.
func (h *Hub) work(doing string, f func()) {
	h.running.Go(func() { _ = h.contain(doing, func() error { f(); return nil }) })
}

// contain is [panics.Do] with the hub's logger at the time of the panic.
func (h *Hub) contain(doing string, f func() error) (err error) {
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			p.Log(h.options.Load().Logger, doing)
			err = p
		}
	}()
	return f()
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
	if id := h.identity.Load(); id != nil {
		return id.pin
	}
	return ""
}

// Close closes the hub. It rejects new connectors and requests at once, and sends
// a drain to the connectors. Running requests may finish until ctx ends. Then
// Close closes all tunnels and the socket. It disconnects waiting devices at once;
// they dial again.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.closing.Err() != nil {
		h.mu.Unlock()
		return nil
	}
	h.stop()
	sessions, devices := slices.Concat(slices.Collect(maps.Values(h.all))...), slices.Collect(maps.Keys(h.waiting))
	h.mu.Unlock()

	h.handshakes.Close()
	for _, w := range devices {
		w.end(link.CloseShutdown)
	}
	var draining sync.WaitGroup
	for _, s := range sessions {
		draining.Go(func() {
			s.stop() // before the drain: it announces that no request follows
			s.send(link.Drain{})
			s.finish(ctx, link.CloseShutdown)
		})
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
