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

// socketGrace is a little more than a connection takes to close.
const socketGrace = 1500 * time.Millisecond

// ServeWebSocket takes a tunnel that comes as a WebSocket, where UDP is blocked:
// inside it are the packets of QUIC. It returns when the WebSocket is open; the tunnel outlives the request. Until its hello is valid it
// counts among the connections of r.RemoteAddr.
func (h *Hub) ServeWebSocket(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 { // nothing can be upgraded, and the headers of that are forbidden (RFC 9113 §8.2.2, RFC 9114 §4.2)
		http.Error(w, "Connectors open a WebSocket here over HTTP/1.1 when UDP is blocked. There is nothing to see.", http.StatusNotFound)
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "Connectors open a WebSocket here when UDP is blocked. There is nothing to see.", http.StatusUpgradeRequired)
		return
	}
	if !strings.Contains(r.Header.Get("Sec-WebSocket-Protocol"), link.Subprotocol) {
		http.Error(w, "This gateway speaks the WebSocket subprotocol "+link.Subprotocol+"; update the connector.", http.StatusBadRequest)
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
		http.Error(w, "Too many connections of this network, or in all, wait for their hello; try again in a moment.", http.StatusTooManyRequests)
		return
	}
	if err := place.enter(r.Context(), h.handshakes); err != nil {
		place.free()
		h.counters.rejected.Add(1)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "Too many connectors come at once; try again in a moment.", http.StatusServiceUnavailable)
		return
	}
	socket, err := websocket.Accept(hijackers{w}, r, &websocket.AcceptOptions{Subprotocols: []string{link.Subprotocol}})
	if err != nil { // it has answered
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

// hijackers is an answer whose connection becomes a tunnel's.
type hijackers struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (h hijackers) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err == nil {
		link.PreferBBR(conn)
	}
	return conn, buffered, err
}

// begin starts f for a new WebSocket, unless the hub is closed.
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

// serveSocket makes a tunnel's connection of a WebSocket, and serves it.
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

// closeSockets gives the connectors at WebSockets the time to read why, and then
// cuts those that have not.
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

// tcpAddr returns a request's RemoteAddr as what it is.
func tcpAddr(remote string) net.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return &net.TCPAddr{}
	}
	return net.TCPAddrFromAddrPort(at)
}

// webSocket is a WebSocket as a connection.
type webSocket struct {
	net.Conn
	socket *websocket.Conn
	remote net.Addr
	once   sync.Once
	closed func()
}

// RemoteAddr implements net.Conn: the address may be what a trusted proxy said.
func (s *webSocket) RemoteAddr() net.Addr { return s.remote }

// Close implements net.Conn. It does not wait for the peer, which QUIC has notified.
func (s *webSocket) Close() error {
	defer s.once.Do(s.closed)
	return s.socket.CloseNow()
}
