package edge

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/cluster/peer"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// patience is how long the tests wait for what must happen.
const patience = time.Minute

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
	c.secret = tunnel.Secrets{Identity: tunnel.Identity{Key: identity}, Reset: key, Token: key}
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
	st, edge, err := o.join(storetest.OpenBolt(c, o.Path), gateway.JoinOptions{
		Logger: slog.New(slog.DiscardHandler), Pin: func() string { return c.pin },
	})
	if err != nil {
		c.Fatal(err)
	}
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

// TestPeers has two gateways of a cluster find each other's tunnel listener, and learn whether
// the other has contact to the store.
func TestPeers(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	socket := c.socket()
	_, a := c.open("a", socket.LocalAddr().String())
	_, b := c.open("b", "")
	answers := &answering{Links: a.Links}
	answers.has.Store(true)
	var preauthenticated atomic.Bool
	c.listen(socket, tunnel.Options{Peers: answers, Preauthenticate: func(id string, match func([]byte) bool) bool {
		matches := a.Match(id, match)
		if matches {
			preauthenticated.Store(true)
		}
		return matches
	}})

	edge := store.Edge{Name: "a", Peer: socket.LocalAddr().String()}
	ask := func(links *peer.Links) (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		pong, err := links.Ask(ctx, edge)
		return !pong.StoreLost, err
	}
	wait.Until(t, "an answer", func() bool { has, err := ask(b.Links); return err == nil && has })
	answers.has.Store(false)
	wait.Until(t, "an answer that the store is lost", func() bool { has, err := ask(b.Links); return err == nil && !has })

	if !preauthenticated.Load() || a.Match("con_1", func([]byte) bool { return true }) {
		t.Error("peers count as strangers, or connectors as peers")
	}
	preauthenticated.Store(false)
	stranger := peer.New(peer.Options{Name: "b", Key: []byte("another cluster"), Pin: func() string { return c.pin }})
	defer stranger.Close()
	for range 10 {
		if _, err := ask(stranger); err == nil {
			t.Fatal("a gateway with another key gets an answer")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if preauthenticated.Load() {
		t.Error("a gateway with another key preauthenticates")
	}
	if _, err := b.Ask(t.Context(), store.Edge{Name: "c"}); err == nil {
		t.Error("a peer without an address answers")
	}
}

// answering is a gateway that says what has says.
type answering struct {
	*peer.Links
	has atomic.Bool
}

func (a *answering) Pong() link.Pong { return link.Pong{StoreLost: !a.has.Load()} }

func (a *answering) Pairings() []link.Pairing { return nil }

func (a *answering) OnPairing(context.Context) func(link.Pairing) { return nil }

func (a *answering) OnSignIn(link.SignIn) {}

func (a *answering) Serve(stream *quic.Stream, _ link.Message) {
	link.Refuse(stream, link.CodeDraining)
}
