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
	// Receive returns the function that applies the messages of a peer, other than pings, in their
	// order. The peer's tunnels are those that it adds to the edge.
	Receive(e *Edge) func(link.Message)
}

// maxPeerAddresses bounds the addresses of peers. If there are more, they are learned again.
const maxPeerAddresses = 1024

// addresses are those of the peers, without ports.
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
func (p *connection) handshakePeer(hello link.Hello) (run func()) {
	o := p.hub.options.Load()
	if o.Peers == nil || !o.Peers.Check(hello, p.conn.ConnectionState().TLS) {
		p.deny(slog.Bool("peer", true), link.Deny{
			Code: link.DenyCredentials, Message: "this gateway is not in a cluster with the one that dials", Retry: true,
		})
		return nil
	}
	if !p.place.peer {
		p.hub.peerAddresses.add(p.conn.RemoteAddr())
		p.deny(slog.String("peer", hello.Peer), link.Deny{
			Code: link.DenyAgain, Message: "the gateway knows this address now: dial again", Retry: true,
		})
		return nil
	}
	p.accepted()
	if !p.send(link.Welcome{Version: o.Version, HeartbeatMillis: int(p.hub.heartbeat().Milliseconds())}) {
		return nil
	}
	e := &Edge{connection: p, name: hello.Peer, region: hello.Region}
	e.beat()
	return func() { e.run(o.Peers) }
}

// run reads what a peer sends until its connection ends.
func (e *Edge) run(peers Peers) {
	h := e.hub
	h.mu.Lock()
	if h.closing.Err() != nil {
		h.mu.Unlock()
		e.end(link.CloseShutdown)
		return
	}
	old := h.edges[e.name]
	h.edges[e.name] = e
	h.mu.Unlock()
	if old != nil {
		old.end(link.CloseReplaced)
	}
	_ = h.contain("reading from a peer", func() error { e.receive(peers.Receive(e)); return nil })
	e.end(link.CloseLost)
	h.mu.Lock()
	if h.edges[e.name] == e {
		delete(h.edges, e.name)
	}
	h.mu.Unlock()
	for _, s := range e.sessions() {
		s.stop()
	}
}

// shutdown lets requests that run at the peer finish until ctx ends, and closes the connection.
func (e *Edge) shutdown(ctx context.Context) {
	tunnels := e.sessions()
	for _, s := range tunnels {
		s.stop()
	}
	for _, s := range tunnels {
		select {
		case <-s.idle:
		case <-ctx.Done():
		case <-e.conn.Context().Done():
		}
	}
	e.end(link.CloseShutdown)
}

// receive answers pings, and has the other messages applied.
func (e *Edge) receive(apply func(link.Message)) {
	for {
		_ = e.stream.SetReadDeadline(time.Now().Add(peerLost))
		m, err := e.control.Receive()
		if err != nil && !errors.Is(err, link.ErrUnknownMessage) {
			return
		}
		e.beat()
		switch m.(type) {
		case nil: // unknown
		case link.Ping:
			if !e.send(link.Pong{}) {
				return
			}
		default:
			apply(m)
		}
	}
}
