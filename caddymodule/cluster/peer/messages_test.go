package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// testGateway is a gateway as its peers see it. It passes on what it receives, and panics for what it
// has no function for.
type testGateway struct {
	pairings []link.Pairing
	received chan link.Message
	lost     error
}

func (g testGateway) Serving() error { return g.lost }

func (g testGateway) Pairings() []link.Pairing { return g.pairings }

func (g testGateway) OnPairing(context.Context) func(link.Pairing) {
	return func(m link.Pairing) { g.received <- m }
}

func (g testGateway) OnSignIn(m link.SignIn) { g.received <- m }

// testCluster is what the gateways of a cluster share.
type testCluster struct {
	testing.TB
	secrets tunnel.Secrets
	pin     string
}

func newTestCluster(t testing.TB) *testCluster {
	t.Helper()
	identity, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	_, pin, err := link.Identity(identity)
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 32)
	return &testCluster{t, tunnel.Secrets{Identity: identity, Reset: key, Token: key}, pin}
}

// join returns the links of a gateway to these peers.
func (c *testCluster) join(name string, g testGateway, log *slog.Logger, peers map[string]string) *Links {
	l := New(Options{
		Name: name, Key: c.secrets.Reset, Pin: func() string { return c.pin }, Gateway: g, Logger: log,
		Peers: func() map[string]string { return peers },
	})
	c.Cleanup(l.Close)
	return l
}

// listen starts a tunnel listener of a gateway. It returns its address.
func (c *testCluster) listen(l *Links) string {
	c.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		c.Fatal(err)
	}
	hub := tunnel.NewHub(tunnel.Options{
		Peers: l, Members: func() tunnel.Members { return tunnel.Members{Name: l.Name} },
		Authenticate: func(_ context.Context, id, _ string) (tunnel.Connector, error) {
			return tunnel.Connector{ID: id}, nil
		},
	})
	if err := hub.Listen(socket, c.secrets); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = hub.Close(context.WithoutCancel(c.Context())) })
	l.Use(hub)
	return socket.LocalAddr().String()
}

// connect connects a connector to a gateway.
func (c *testCluster) connect(server, id string) {
	c.Helper()
	token := func() link.Token { return link.Token{Server: server, Pin: c.pin, Connector: id, Secret: "secret"} }
	conn, err := dial.NewQUIC(dial.Target{Server: server, Token: token, MaxRequests: 1}).Dial(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = conn.Close(link.CloseNone, "") })
	stream, err := conn.OpenStreamSync(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	control := link.NewControl(stream)
	if err := control.Send(helloOf(id)); err != nil {
		c.Fatal(err)
	}
	if m, err := control.Receive(); err != nil {
		c.Fatalf("the gateway answers %v, %v", m, err)
	}
}

func helloOf(id string) link.Hello {
	return link.Hello{
		Connector: id, Secret: "secret", Instance: "instance", Name: "host", Version: "1", OS: "linux/amd64",
		Upstreams: []string{"ollama"},
	}
}

// pair returns the gateways a and b of a cluster, and a's address. b has a connection to a.
func pair(t *testing.T, ofA, ofB testGateway, log *slog.Logger) (c *testCluster, a, b *Links, address string) {
	t.Helper()
	c = newTestCluster(t)
	a = c.join("a", ofA, log, nil)
	address = c.listen(a)
	b = c.join("b", ofB, log, map[string]string{"a": address})
	b.Follow()
	connected(t, a, "b")
	return c, a, b, address
}

// connected waits for the connection of a peer.
func connected(t *testing.T, l *Links, peer string) {
	t.Helper()
	wait.Until(t, "the connection of a peer", func() bool {
		stream, err := l.Hub().Open(peer)
		if err == nil {
			link.Refuse(stream, link.CodeCancelled)
		}
		return err == nil
	})
}

// TestMessagesInOrder: a peer gets the pairings first, and then all that is published, in its order.
func TestMessagesInOrder(t *testing.T) {
	t.Parallel()
	const many = 1000
	received := make(chan link.Message, 1+2*many)
	_, _, b, _ := pair(t, testGateway{received: received}, testGateway{pairings: []link.Pairing{{ID: "before"}}}, nil)
	if m := wait.For(t, received, "the pairing"); !reflect.DeepEqual(m, link.Pairing{ID: "before"}) {
		t.Errorf("first %+v", m)
	}
	for i := range many {
		b.Publish(link.Pairing{ID: fmt.Sprint(i)})
		b.Publish(link.SignIn{Address: fmt.Sprint(i)})
	}
	for i := range many {
		for _, want := range []link.Message{link.Pairing{ID: fmt.Sprint(i)}, link.SignIn{Address: fmt.Sprint(i)}} {
			if m := wait.For(t, received, "a message"); !reflect.DeepEqual(m, want) {
				t.Fatalf("received %+v, want %+v", m, want)
			}
		}
	}
}

// TestPeersThatDoNotRead: announcing ends with the connection, whatever a peer does not read, or when
// it is far behind. Nothing is left then.
func TestPeersThatDoNotRead(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			t.Parallel()
			l := New(Options{Gateway: testGateway{pairings: []link.Pairing{{ID: "one"}}}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sending, read, ended := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- l.announce(ctx, func(link.Message) error {
					sending <- struct{}{}
					select {
					case <-ctx.Done():
					case <-read:
					}
					return ctx.Err()
				})
			}()
			wait.For(t, sending, "a message")
			want := context.Canceled
			if behind {
				want = errBehind
				for range maxQueued + 1 {
					l.Publish(link.SignIn{})
				}
				close(read)
			} else {
				cancel()
			}
			if err := wait.For(t, ended, "the end"); !errors.Is(err, want) {
				t.Errorf("ended with %v", err)
			}
			wait.Until(t, "nothing is left", func() bool {
				p := &l.presence
				p.mu.Lock()
				defer p.mu.Unlock()
				return !p.running && len(p.published) == 0 && len(p.subscribers) == 0
			})
		})
	}
}

// TestNextHub: when another hub is in use, a peer knows its tunnels, and none of the earlier hub,
// although that is still open.
func TestNextHub(t *testing.T) {
	t.Parallel()
	c, a, b, _ := pair(t, testGateway{}, testGateway{}, nil)
	expect := func(id string) {
		t.Helper()
		c.connect(c.listen(b), id)
		wait.Until(t, "the tunnels of the hub in use", func() bool {
			return slices.EqualFunc(a.Hub().Sessions(), []string{id},
				func(i tunnel.Info, id string) bool { return i.Connector == id })
		})
	}
	expect("con_1")
	expect("con_2")
	if s := a.Hub().Sessions()[0]; !s.AtPeer || !slices.Equal(s.Edges, []string{"b"}) {
		t.Errorf("%+v", s)
	}
}

// TestTunnelsOfPeer: a peer announces a tunnel that is known already, and changes of unknown ones.
func TestTunnelsOfPeer(t *testing.T) {
	t.Parallel()
	c, a, _, address := pair(t, testGateway{}, testGateway{}, nil)
	there, err := c.join("c", testGateway{}, nil, nil).dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	opened := &link.TunnelOpened{Hello: helloOf("con_1")}
	for _, m := range []link.Tunnel{
		{Session: "s", Opened: opened, Active: 1},
		{Session: "s", Opened: opened, Active: 1},
		{Session: "unknown", Ended: true},
		{Session: "unknown", Active: 1},
		{Session: "last", Opened: &link.TunnelOpened{Hello: helloOf("con_2")}},
	} {
		if err := there.send(m); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "both tunnels", func() bool { return len(a.Hub().Sessions()) == 2 })
	if s := a.Hub().Sessions(); s[0].Active != 1 || s[1].Active != 0 {
		t.Errorf("%+v", s)
	}
	if err := there.send(link.Tunnel{Session: "s", Ended: true}); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the end of a tunnel", func() bool { return len(a.Hub().Sessions()) == 1 })
	_ = there.conn.Close(link.CloseNone, "")
	wait.Until(t, "the end of the other one", func() bool { return len(a.Hub().Sessions()) == 0 })
}
