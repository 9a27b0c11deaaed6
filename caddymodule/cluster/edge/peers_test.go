package edge

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/cluster/peer"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// testCluster is what the gateways of a cluster share.
type testCluster struct {
	testing.TB
	shared store.KV
	secret tunnel.Secrets
	pin    string
}

func newTestCluster(t testing.TB) *testCluster {
	t.Helper()
	c := &testCluster{TB: t, shared: storetest.WithLeases(storetest.OpenBolt(t, filepath.Join(t.TempDir(), "shared.db")))}
	key, err := gateway.RandomKey()
	if err != nil {
		t.Fatal(err)
	}
	identity, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if _, c.pin, err = link.Identity(identity); err != nil {
		t.Fatal(err)
	}
	c.secret = tunnel.Secrets{Identity: identity, Reset: key, Token: key}
	return c
}

// open has a gateway join, with this address for its peers.
func (c *testCluster) open(name, address string) (*store.Store, *Edge) {
	c.Helper()
	o := Options{
		Path:   filepath.Join(c.TempDir(), name+".db"),
		Edge:   store.Edge{Name: name, Peer: address, OnStoreLoss: time.Minute},
		Shared: func(context.Context, *slog.Logger) (store.KV, error) { return storetest.Share(c.shared), nil },
	}
	st, joined, err := o.Join(storetest.OpenBolt(c, o.Path), gateway.JoinOptions{
		Logger: slog.New(slog.DiscardHandler), Pin: func() string { return c.pin },
	})
	if err != nil {
		c.Fatal(err)
	}
	edge := joined.(*Edge)
	edge.Gateway = withoutPairings{edge}
	c.Cleanup(func() {
		if err := edge.Leave(); err != nil {
			c.Error(err)
		}
		_ = st.Close()
	})
	return st, edge
}

// socket returns a socket of a tunnel listener.
func (c *testCluster) socket() *net.UDPConn {
	c.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		c.Fatal(err)
	}
	return socket
}

// listen starts a tunnel listener.
func (c *testCluster) listen(socket *net.UDPConn, o tunnel.Options) *tunnel.Hub {
	c.Helper()
	hub := tunnel.NewHub(o)
	if err := hub.Listen(socket, c.secret); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = hub.Close(context.WithoutCancel(c.Context())) })
	return hub
}

// TestPeers has a gateway of a cluster connect to the tunnel listener of another one, as long as that
// is in the list of edges.
func TestPeers(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	socket := c.socket()
	st, a := c.open("a", socket.LocalAddr().String())
	_, b := c.open("b", "")
	var preauthenticated atomic.Bool
	hub := c.listen(socket, tunnel.Options{Peers: a, Preauthenticate: func(id string, match func([]byte) bool) bool {
		matches := a.Match(id, match)
		if matches {
			preauthenticated.Store(true)
		}
		return matches
	}})
	connected := func(name string) bool {
		stream, err := hub.Open(name)
		if err == nil {
			link.Refuse(stream, link.CodeCancelled)
		}
		return err == nil
	}
	stranger := peer.New(peer.Options{
		Name: "stranger", Key: []byte("another cluster"), Pin: func() string { return c.pin },
		Peers: func() map[string]string { return map[string]string{"a": socket.LocalAddr().String()} },
	})
	stranger.Follow()
	wait.Until(t, "a refusal of a gateway with another key", func() bool { return hub.Counters().Denied >= 2 })
	stranger.Close()
	if connected("stranger") || preauthenticated.Load() {
		t.Error("a gateway with another key is a peer")
	}
	b.Follow()
	wait.Until(t, "a connection", func() bool { return connected("b") })
	if !preauthenticated.Load() || a.Match("con_1", func([]byte) bool { return true }) {
		t.Error("peers count as strangers, or connectors as peers")
	}
	if _, err := st.ChangeEdge(t.Context(), "a", func(e *store.Edge) { e.Peer = "" }); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the end of the connection", func() bool {
		b.Follow()
		return !connected("b")
	})
}

// withoutPairings is a gateway that has none.
type withoutPairings struct{ *Edge }

func (withoutPairings) Pairings() []link.Pairing { return nil }

func (withoutPairings) OnPairing(context.Context) func(link.Pairing) { return func(link.Pairing) {} }
