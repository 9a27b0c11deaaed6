package doctor

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
)

// testToken is a well-formed token that no gateway accepts.
var testToken = link.Token{
	Server:    "gw.example.com:7443",
	Pin:       "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg",
	Connector: "con_aaaaaaaaaaaaaaaaaaaaaaaaaa",
	Secret:    "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I",
}

// fakeGateway answers hellos of dry runs, over QUIC.
type fakeGateway struct {
	t     *testing.T
	token link.Token

	mu     sync.Mutex
	deny   *link.Deny // answers every hello, unless nil
	mute   bool       // answers no hello
	hellos int        // that are not dry runs
	edges  []link.Edge
}

func startGateway(t *testing.T) *fakeGateway {
	t.Helper()
	identity, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	cert, pin, err := link.Identity(identity)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	transport := &quic.Transport{Conn: socket}
	listener, err := transport.Listen(link.GatewayTLS(cert), link.GatewayQUIC())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		transport.Close()
		socket.Close()
	})
	g := &fakeGateway{t: t, token: link.Token{
		Server: socket.LocalAddr().String(), Pin: pin,
		Connector: testToken.Connector, Secret: testToken.Secret,
	}}
	go func() {
		for {
			conn, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			go g.answer(conn)
		}
	}()
	return g
}

func (g *fakeGateway) answer(conn *quic.Conn) {
	stream, err := conn.AcceptStream(conn.Context())
	if err != nil {
		return
	}
	control := link.NewControl(stream)
	message, err := control.Receive()
	hello, ok := message.(link.Hello)
	if err != nil || !ok || hello.Check() != nil {
		g.t.Errorf("first message %+v, %v", message, err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !hello.DryRun {
		g.hellos++
	}
	switch {
	case g.mute:
	case g.deny != nil:
		control.Send(*g.deny)
	default:
		control.Send(link.Welcome{Version: "test", Edges: link.Edges{Edge: "a", List: g.edges}})
	}
}

// set changes the gateway's behavior.
func (g *fakeGateway) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// count returns the number of hellos that are not dry runs.
func (g *fakeGateway) count() (n int) {
	g.set(func() { n = g.hellos })
	return n
}

// config returns a configuration for the gateway, with upstreams by name and base URL.
func (g *fakeGateway) config(upstreams map[string]string) config.Config {
	c := config.Config{TunnelToken: g.token.Encode(), Upstreams: map[string]config.Upstream{}}
	for name, base := range upstreams {
		c.Upstreams[name] = config.Upstream{BaseURL: base + "/v1"}
	}
	return c
}

func serveBox(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}
