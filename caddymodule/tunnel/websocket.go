package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/postern-dev/postern/connector/link"
)

// socketGrace is slightly longer than a connection takes to close.
const socketGrace = 1500 * time.Millisecond

// ServeWebSocket accepts a tunnel over a WebSocket, which carries QUIC packets where
// UDP is blocked. It returns when the WebSocket is open; the tunnel outlives the
// request. Until its hello is valid, it counts as a pending connection of
// r.RemoteAddr.
func (h *Hub) ServeWebSocket(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 { // upgrades and their headers are forbidden (RFC 9113 §8.2.2, RFC 9114 §4.2)
		http.Error(w, "This endpoint is for connectors only. They open a WebSocket here over HTTP/1.1 when UDP is blocked.", http.StatusNotFound)
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "This endpoint is for connectors only. They open a WebSocket here when UDP is blocked.", http.StatusUpgradeRequired)
		return
	}
	if !strings.Contains(r.Header.Get("Sec-WebSocket-Protocol"), link.Subprotocol) {
		http.Error(w, "This gateway requires the WebSocket subprotocol "+link.Subprotocol+"; update the connector.", http.StatusBadRequest)
		return
	}
	h.mu.RLock()
	config, closed := h.tls, h.closed
	h.mu.RUnlock()
	if config == nil || closed {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "The gateway is starting or shutting down; try again in a moment.", http.StatusServiceUnavailable)
		return
	}
	place := h.takeFor(r)
	if place == nil {
		h.counters.rejected.Add(1)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "Too many connections without a hello, from this network or in total; try again in a moment.", http.StatusTooManyRequests)
		return
	}
	if err := place.enter(r.Context(), h.handshakes); err != nil {
		place.free()
		h.counters.rejected.Add(1)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "Too many connectors are connecting at once; try again in a moment.", http.StatusServiceUnavailable)
		return
	}
	socket, err := websocket.Accept(hijackers{w}, r, &websocket.AcceptOptions{Subprotocols: []string{link.Subprotocol}})
	if err != nil { // Accept has sent the response
		place.free()
		h.counters.rejected.Add(1)
		return
	}
	raw := &webSocket{
		Conn:   websocket.NetConn(h.life, socket, websocket.MessageBinary),
		socket: socket, remote: tcpAddr(r.RemoteAddr), closed: h.sockets.Done,
	}
	if !h.begin(func() { h.serveSocket(raw, config, place) }) {
		place.free()
		_ = socket.CloseNow()
	}
}

// takeFor returns a place for the connection of a request, or nil.
func (h *Hub) takeFor(r *http.Request) *place {
	from := networksOf(tcpAddr(r.RemoteAddr))
	if text := r.Header.Get(link.PreauthHeader); text != "" {
		if connector := h.preauthenticate(text); connector != "" {
			if place := h.pending.takeKnown(from, connector); place != nil {
				return place
			}
		}
	}
	place := h.pending.take(from, h.options.Load().PendingPerAddress)
	if place != nil && !place.identify("") {
		place.free()
		return nil
	}
	return place
}

// hijackers is a response writer whose hijacked connection is tuned for a tunnel.
type hijackers struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (h hijackers) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err == nil {
		link.PreferBBR(conn)
	}
	return conn, buffered, err
}

// begin starts f for a new WebSocket. It returns false if the hub is closed.
func (h *Hub) begin(f func()) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return false
	}
	h.sockets.Add(1)
	h.running.Go(f)
	return true
}

// serveSocket establishes a tunnel connection over a WebSocket and serves it.
func (h *Hub) serveSocket(raw *webSocket, config *tls.Config, place *place) {
	handshake, cancel := context.WithTimeout(h.life, helloTimeout)
	defer cancel()
	conn, err := link.WebSocketGateway(handshake, raw, config, place.hold)
	if err != nil {
		place.free()
		h.counters.rejected.Add(1)
		h.options.Load().Logger.Debug("rejecting a tunnel connection", "remote", raw.remote.String(), "error", err)
		return
	}
	h.serve(conn)
}

// closeSockets waits up to socketGrace for the peers of WebSockets to read the reason
// and disconnect, then closes the remaining WebSockets.
func (h *Hub) closeSockets() {
	gone := make(chan struct{})
	go func() {
		h.sockets.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(socketGrace):
	}
	h.end()
}

// tcpAddr parses a request's RemoteAddr.
func tcpAddr(remote string) net.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return &net.TCPAddr{}
	}
	return net.TCPAddrFromAddrPort(at)
}

// webSocket is a net.Conn over a WebSocket.
type webSocket struct {
	net.Conn
	socket *websocket.Conn
	remote net.Addr
	once   sync.Once
	closed func()
}

// RemoteAddr implements net.Conn. It may return the address from a trusted proxy.
func (s *webSocket) RemoteAddr() net.Addr { return s.remote }

// Close implements net.Conn. It does not wait for the peer, which QUIC has already
// notified.
func (s *webSocket) Close() error {
	defer s.once.Do(s.closed)
	return s.socket.CloseNow()
}
