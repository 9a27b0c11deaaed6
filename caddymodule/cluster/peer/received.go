package peer

import (
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Receive implements tunnel.Peers.
func (l *Links) Receive(p *tunnel.PeerConn) func(link.Message) {
	tunnels := peerTunnels{p, make(map[string]*tunnel.Session)}
	onPairing := l.Gateway.OnPairing(p.Context())
	return func(m link.Message) {
		switch m := m.(type) {
		case link.Tunnel:
			tunnels.apply(m)
		case link.Pairing:
			onPairing(m)
		case link.SignIn:
			l.Gateway.OnSignIn(m)
		}
	}
}

// peerTunnels are the tunnels at a peer.
type peerTunnels struct {
	conn     *tunnel.PeerConn
	sessions map[string]*tunnel.Session // by id
}

// apply applies a message of the peer about one of its tunnels.
func (t peerTunnels) apply(m link.Tunnel) {
	switch s := t.sessions[m.Session]; {
	case m.Opened != nil:
		if s != nil { // sent again
			t.conn.Remove(s)
		}
		t.sessions[m.Session] = t.conn.Add(m)
	case s == nil:
	case m.Ended:
		t.conn.Remove(s)
		delete(t.sessions, m.Session)
	default:
		t.conn.Update(s, m)
	}
}
