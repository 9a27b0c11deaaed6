package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// Peers are the other gateways of a cluster.
type Peers interface {
	// Check reports whether the hello is that of a gateway of this cluster.
	Check(hello link.Hello, connection tls.ConnectionState) bool
	// Receive returns the function that applies the messages of a peer, except pings, in their
	// order. It adds the peer's tunnels to p.
	Receive(p *PeerConn) func(link.Message)
}

// maxPeerAddresses bounds the known addresses of peers. At the bound, all are forgotten and learned again.
const maxPeerAddresses = 1024

// addresses are addresses of peers, without ports.
type addresses struct {
	mu    sync.Mutex
	known map[string]struct{}
}

func (a *addresses) has(address net.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.known[hostOf(address)]
	return known
}

func (a *addresses) add(address net.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil || len(a.known) >= maxPeerAddresses {
		a.known = make(map[string]struct{})
	}
	a.known[hostOf(address)] = struct{}{}
}

// handshakePeer answers the hello of a gateway. It returns the function that serves the
// connection, nil if it was denied.
func (c *connection) handshakePeer(hello link.Hello) (run func()) {
	o := c.hub.options.Load()
	if o.Peers == nil || !o.Peers.Check(hello, c.conn.ConnectionState().TLS) {
		c.deny(slog.Bool("peer", true), link.Deny{
			Code: link.DenyCredentials, Message: "this gateway is not in a cluster with the one that dials", Retry: true,
		})
		return nil
	}
	if !c.pending.peerWindows {
		c.hub.peerAddresses.add(c.conn.RemoteAddr())
		c.deny(slog.String("peer", hello.Peer), link.Deny{
			Code: link.DenyAgain, Message: "the gateway knows this address now: dial again", Retry: true,
		})
		return nil
	}
	c.accepted()
	if !c.send(link.Welcome{Version: o.Version, HeartbeatMillis: int(c.hub.heartbeat().Milliseconds())}) {
		return nil
	}
	p := &PeerConn{connection: c, name: hello.Peer, region: hello.Region}
	p.beat()
	return func() { p.run(o.Peers) }
}

// run reads messages of a peer until its connection ends.
func (p *PeerConn) run(peers Peers) {
	h := p.hub
	h.mu.Lock()
	if h.closing.Err() != nil {
		h.mu.Unlock()
		p.end(link.CloseShutdown)
		return
	}
	old := h.peers[p.name]
	h.peers[p.name] = p
	h.mu.Unlock()
	if old != nil {
		old.end(link.CloseReplaced)
	}
	_ = h.contain("reading from a peer", func() error { p.receive(peers.Receive(p)); return nil })
	p.end(link.CloseLost)
	h.mu.Lock()
	if h.peers[p.name] == p {
		delete(h.peers, p.name)
	}
	h.mu.Unlock()
	for _, s := range p.sessions() {
		s.stop()
	}
}

// shutdown waits for requests that run at the peer until ctx ends, and closes the connection.
func (p *PeerConn) shutdown(ctx context.Context) {
	tunnels := p.sessions()
	for _, s := range tunnels {
		s.stop()
	}
	for _, s := range tunnels {
		select {
		case <-s.idle:
		case <-ctx.Done():
		case <-p.conn.Context().Done():
		}
	}
	p.end(link.CloseShutdown)
}

// receive answers pings, and calls apply with the other messages.
func (p *PeerConn) receive(apply func(link.Message)) {
	for {
		_ = p.stream.SetReadDeadline(time.Now().Add(peerLost))
		m, err := p.control.Receive()
		if err != nil && !errors.Is(err, link.ErrUnknownMessage) {
			return
		}
		p.beat()
		switch m.(type) {
		case nil: // unknown
		case link.Ping:
			if !p.send(link.Pong{}) {
				return
			}
		default:
			apply(m)
		}
	}
}
