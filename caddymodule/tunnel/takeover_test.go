package tunnel

import (
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// anyPeer is a cluster that all gateways belong to.
type anyPeer struct{}

func (anyPeer) Check(link.Hello, tls.ConnectionState) bool { return true }

// Receive implements Peers, for messages about tunnels.
func (anyPeer) Receive(e *PeerConn) func(link.Message) {
	tunnels := make(map[string]*Session)
	return func(message link.Message) {
		m := message.(link.Tunnel)
		switch s := tunnels[m.Session]; {
		case m.Opened != nil:
			tunnels[m.Session] = e.Add(m)
		case m.Ended:
			e.Remove(s)
		default:
			e.Update(s, m)
		}
	}
}

// TestLaterProcessAtPeer: a process of the connector that started later has a tunnel at a peer.
// An earlier one has to end, whether it is here or dials now. A later one stays.
func TestLaterProcessAtPeer(t *testing.T) {
	for name, tt := range map[string]struct {
		here     int64 // when the process of the tunnel here started
		first    bool  // its hello comes before the peer's message
		replaced bool
	}{
		"it is here":     {here: 1000, first: true, replaced: true},
		"it dials":       {here: 1000, replaced: true},
		"a later one":    {here: 3000, first: true},
		"it dials later": {here: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, Options{Peers: anyPeer{}})
			peer, err := g.dial(t, g.peerSocket(t), link.Hello{Peer: "b", Secret: "secret"}, http.NotFoundHandler())
			if err != nil {
				t.Fatal(err)
			}
			var here *testConnector
			connect := func() {
				h := hello("con_1")
				h.StartedMillis = tt.here
				here, err = g.dial(t, g.socket(t), h, named("here"))
				if code, _ := link.CloseReason(err); err != nil && code != link.CloseReplaced { // it may overtake the welcome
					t.Fatal(err)
				}
			}
			if tt.first {
				connect()
			}
			there := hello("con_1")
			there.Secret, there.Instance, there.StartedMillis = "", "another", 2000
			if err := peer.control.Send(link.Tunnel{Session: "there", Opened: &link.TunnelOpened{Hello: there}}); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the tunnel at the peer", func() bool {
				g.mu.RLock()
				defer g.mu.RUnlock()
				return len(g.remote["con_1"]) == 1
			})
			if !tt.first {
				connect()
			}
			if tt.replaced {
				if code := here.ended(t); code != link.CloseReplaced {
					t.Errorf("closed with %v", code)
				}
				return
			}
			if body, err := g.do(t, "con_1", ""); body != "here" || err != nil {
				t.Errorf("answer %q, %v", body, err)
			}
		})
	}
}
