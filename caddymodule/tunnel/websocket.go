package tunnel

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
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
		http.Error(w, "This endpoint is for connectors only. They open a WebSocket here over HTTP/1.1 when UDP is blocked.",
			http.StatusNotFound)
		return
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "This endpoint is for connectors only. They open a WebSocket here when UDP is blocked.",
			http.StatusUpgradeRequired)
		return
	}
	offered := r.Header.Get("Sec-WebSocket-Protocol")
	if !strings.Contains(offered, link.Subprotocol) && !strings.Contains(offered, link.FormerSubprotocol) {
		http.Error(w, "This gateway requires the WebSocket subprotocol "+link.Subprotocol+"; update the connector.",
			http.StatusBadRequest)
		return
	}
	h.mu.RLock()
	config := h.tls
	h.mu.RUnlock()
	if config == nil || h.closing.Err() != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "The gateway is starting or shutting down; try again in a moment.", http.StatusServiceUnavailable)
		return
	}
	pending := h.admitSocket(r)
	if pending == nil {
		h.refuse(w, "Too many connections without a hello, from this network or in total; try again in a moment.",
			http.StatusTooManyRequests)
		return
	}
	if err := pending.waitHandshake(r.Context(), h.handshakes); err != nil {
		pending.free()
		h.refuse(w, "Too many connectors are connecting at once; try again in a moment.", http.StatusServiceUnavailable)
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{link.Subprotocol, link.FormerSubprotocol},
	})
	if err != nil { // Accept has sent the response
		pending.free()
		h.counters.rejected.Add(1)
		return
	}
	stream := websocket.NetConn(h.socketsCtx, socket, websocket.MessageBinary)
	raw := link.NewWebSocket(stream, tcpAddr(r.RemoteAddr), func() error {
		defer h.sockets.Done()
		return socket.CloseNow()
	})
	if !h.begin(func() { h.serveSocket(raw, config, pending) }) {
		pending.free()
		_ = socket.CloseNow()
	}
}

// refuse answers a request for a WebSocket when there are too many connections.
func (h *Hub) refuse(w http.ResponseWriter, message string, status int) {
	h.counters.rejected.Add(1)
	w.Header().Set("Retry-After", "5")
	http.Error(w, message, status)
}

// admitSocket counts the connection of a request. It returns nil if there are too many.
func (h *Hub) admitSocket(r *http.Request) *pendingConn {
	remote, preauth := tcpAddr(r.RemoteAddr), r.Header.Get(link.PreauthHeader)
	networks, connector := networksOf(remote), h.preauthenticate(preauth)
	if connector == "" && h.pending.crowded(networks) {
		connector = h.preauthenticateDevice(remote, preauth)
	}
	pending := h.pending.add(networks, connector)
	if pending != nil && pending.connector == "" && !pending.identify("") {
		pending.free()
		return nil
	}
	return pending
}

// begin starts f for a new WebSocket. It returns false if the hub is closed.
func (h *Hub) begin(f func()) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closing.Err() != nil {
		return false
	}
	h.sockets.Add(1)
	h.work("accepting a WebSocket", f)
	return true
}

// serveSocket establishes a tunnel connection over a WebSocket and serves it.
func (h *Hub) serveSocket(raw net.Conn, config *tls.Config, pending *pendingConn) {
	handshake, cancel := context.WithTimeout(h.socketsCtx, helloTimeout)
	defer cancel()
	conn, err := link.WebSocketGateway(handshake, raw, config, pending.bind)
	if err != nil {
		pending.free()
		h.counters.rejected.Add(1)
		h.options.Load().Logger.Debug("rejecting a tunnel connection", "remote", raw.RemoteAddr().String(), "error", err)
		return
	}
	h.serve(conn)
}

// closeSockets waits up to socketGrace until the connectors have read the reason and closed
// their WebSockets, then closes those that remain.
func (h *Hub) closeSockets() {
	closed := make(chan struct{})
	go func() {
		h.sockets.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(socketGrace):
	}
	h.abortSockets()
}

// tcpAddr parses a request's RemoteAddr.
func tcpAddr(remote string) net.Addr {
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return &net.TCPAddr{}
	}
	return net.TCPAddrFromAddrPort(addr)
}
