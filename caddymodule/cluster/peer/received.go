package peer

import (
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Receive implements tunnel.Peers.
func (l *Links) Receive(e *tunnel.PeerConn) func(link.Message) {
	tunnels := tunnelsAt{e, make(map[string]*tunnel.Session)}
	onPairing := l.Gateway.OnPairing(e.Context())
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

// tunnelsAt are the tunnels at a peer.
type tunnelsAt struct {
	edge *tunnel.PeerConn
	byID map[string]*tunnel.Session
}

// apply applies a message of the peer about one of its tunnels.
func (t tunnelsAt) apply(m link.Tunnel) {
	switch s := t.byID[m.Session]; {
	case m.Opened != nil:
		if s != nil { // sent again
			t.edge.Remove(s)
		}
		t.byID[m.Session] = t.edge.Add(m)
	case s == nil:
	case m.Ended:
		t.edge.Remove(s)
		delete(t.byID, m.Session)
	default:
		t.edge.Update(s, m)
	}
}
