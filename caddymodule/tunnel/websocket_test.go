package tunnel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// newWebGateway is newGateway for connectors that cannot use UDP.
func newWebGateway(t testing.TB, o Options) *testGateway {
	t.Helper()
	g := newGateway(t, o)
	g.serveHTTP(t, httptest.NewServer(http.HandlerFunc(g.ServeWebSocket)))
	return g
}

// overPipes is newWebGateway for a gateway in a bubble of virtual time.
func (g *testGateway) overPipes(t testing.TB) *testGateway {
	t.Helper()
	g.pipes = &pipes{conns: make(chan net.Conn)}
	g.pipes.life, g.pipes.end = context.WithCancel(context.Background())
	server := httptest.NewUnstartedServer(http.HandlerFunc(g.ServeWebSocket))
	_ = server.Listener.Close()
	server.Listener = g.pipes
	server.Start()
	g.serveHTTP(t, server)
	return g
}

// serveHTTP serves WebSockets of connectors until the test ends.
func (g *testGateway) serveHTTP(t testing.TB, server *httptest.Server) {
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		// The gateway should see that its connectors have closed their tunnels: if it closes
		// them at the same time, both sides wait for each other's answer.
		closed := make(chan struct{})
		go func() { g.sockets.Wait(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(time.Second): // some tests leave a WebSocket open
		}
	})
	g.web = server.URL
}

// pipes is a network of byte streams in a bubble of virtual time. It is for small
// messages: QUIC's pacing may need the time to pass while it sends.
type pipes struct {
	conns chan net.Conn
	life  context.Context
	end   context.CancelFunc
	cut   atomic.Bool // nothing arrives, without an error on either side, as after a loss of power
}

// pipe is an end of a connection between two addresses.
type pipe struct {
	net.Conn
	of *pipes
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.life.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80} }

func (p *pipes) Close() error {
	p.end()
	return nil
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- pipe{near, p}:
		return pipe{far, p}, nil
	case <-p.life.Done():
		return nil, net.ErrClosed
	}
}

func (c pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 1, 1), Port: 5000} }

func (c pipe) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond) // QUIC does not expect round trips of no time
	if c.of.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// dialWebSocket opens a WebSocket to the gateway's HTTP server.
func (g *testGateway) dialWebSocket(ctx context.Context) (*websocket.Conn, error) {
	o := &websocket.DialOptions{
		Subprotocols: []string{link.Subprotocol},
		HTTPHeader:   http.Header{link.PreauthHeader: {g.preauth}},
	}
	if g.pipes != nil {
		o.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: g.pipes.dial}}
	}
	socket, _, err := websocket.Dial(ctx, g.web+link.WebSocketPath, o)
	return socket, err
}

// openWebSocket makes a connection over the gateway's HTTP server.
func (g *testGateway) openWebSocket(ctx context.Context, config *quic.Config) (*link.Conn, error) {
	socket, err := g.dialWebSocket(ctx)
	if err != nil {
		return nil, err
	}
	g.sockets.Add(1)
	raw := link.NewWebSocket(websocket.NetConn(context.Background(), socket, websocket.MessageBinary), &net.TCPAddr{},
		func() error {
			defer g.sockets.Done()
			return socket.CloseNow()
		})
	return link.WebSocketConnector(ctx, raw, link.ConnectorTLS("", g.Pin()), config)
}

func TestWebSocketInfo(t *testing.T) {
	g := newWebGateway(t, Options{})
	c := g.connect(t, "con_1", echo)
	if body, err := g.do(t, "con_1", "hi"); body != "hi" || err != nil {
		t.Fatalf("answer %q, %v", body, err)
	}
	i := g.Sessions()[0]
	if i.Transport != "websocket" || !strings.HasPrefix(i.Remote, "127.0.0.1:") || i.Session != c.welcome.Session {
		t.Errorf("info %+v", i)
	}
	wait.Until(t, "the round trip is measured", func() bool { return g.Sessions()[0].RTT > 0 })
}

// TestWebSocketRefusals: a client that is not a connector gets an explanation.
func TestWebSocketRefusals(t *testing.T) {
	g := newWebGateway(t, Options{})
	upgrade := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {link.Subprotocol},
	}
	starting := &testGateway{Hub: NewHub(Options{})}
	for name, test := range map[string]struct {
		change func(http.Header)
		hub    *testGateway
		status int
	}{
		"plain GET":      {func(h http.Header) { clear(h) }, g, http.StatusUpgradeRequired},
		"other protocol": {func(h http.Header) { h.Set("Sec-Websocket-Protocol", "chat") }, g, http.StatusBadRequest},
		"a web page":     {func(h http.Header) { h.Set("Origin", "https://example.com") }, g, http.StatusForbidden},
		"starting":       {func(http.Header) {}, starting, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			if test.hub == starting {
				server := newServer(t, starting)
				defer func(web string) { g.web = web }(g.web)
				g.web = server
			}
			r, err := http.NewRequest(http.MethodGet, g.web+link.WebSocketPath, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = upgrade.Clone()
			test.change(r.Header)
			answer, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			body, _ := io.ReadAll(answer.Body)
			if answer.StatusCode != test.status || len(body) < 10 {
				t.Errorf("status %d: %s", answer.StatusCode, body)
			}
		})
	}
	if n := slots(g); n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

func slots(g *testGateway) int {
	g.pending.mu.Lock()
	defer g.pending.mu.Unlock()
	return g.pending.unknown.Used() + g.pending.known
}

// TestWebSocketPendingCap: WebSockets without a hello are bounded, with and without a handshake.
func TestWebSocketPendingCap(t *testing.T) { synctest.Test(t, testWebSocketPendingCap) }

func testWebSocketPendingCap(t *testing.T) {
	g := new(network).newGateway(t, time.Millisecond, Options{}).overPipes(t)
	g.limitPending(2)
	half, err := g.dialWebSocket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer half.CloseNow()
	whole, err := g.openWebSocket(t.Context(), link.ConnectorQUIC(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.openWebSocket(t.Context(), link.ConnectorQUIC(0)); err == nil || !strings.Contains(err.Error(), "429") {
		t.Fatalf("the third: %v", err)
	}
	_ = half.CloseNow()
	// A connector with a valid hello does not count.
	for _, id := range []string{"con_1", "con_2", "con_3"} {
		wait.Until(t, "there is room", func() bool {
			_, err := g.dial(t, g.socket(t), hello(id), echo)
			return err == nil
		})
	}
	at := time.Now()
	control, err := whole.OpenStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, control)
	wait.For(t, whole.Context().Done(), "the close")
	if d := time.Since(at); d > helloTimeout+soon {
		t.Errorf("without a hello it lived for %v", d)
	}
	if code, ok := link.CloseReason(context.Cause(whole.Context())); !ok || code != link.CloseProtocol {
		t.Errorf("closed with %v", context.Cause(whole.Context()))
	}
	wait.Until(t, "all slots are free", func() bool { return slots(g) == 0 })
}

// TestWebSocketNoise: bytes that are no packets.
func TestWebSocketNoise(t *testing.T) {
	g := newWebGateway(t, Options{})
	s, _, err := websocket.Dial(t.Context(), g.web, &websocket.DialOptions{Subprotocols: []string{link.Subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.CloseNow()
	if err := s.Write(t.Context(), websocket.MessageBinary, []byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, _, err = s.Read(t.Context())
	}
	wait.Until(t, "it is counted", func() bool { return g.Counters().Rejected == 1 && slots(g) == 0 })
}

// TestTransportsReplaceEachOther: a connector has one tunnel, of either kind.
func TestTransportsReplaceEachOther(t *testing.T) {
	simulate(t, time.Millisecond, func(t *testing.T, _ *network, g *testGateway, _ []net.PacketConn) {
		g.overPipes(t)
		web := g.connect(t, "con_1", named("web"))
		url := g.web
		g.web = ""
		quic := g.connect(t, "con_1", named("quic"))
		if code := web.ended(t); code != link.CloseReplaced {
			t.Errorf("closed with %v", code)
		}
		if body, err := g.do(t, "con_1", ""); body != "quic" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
		g.web = url
		g.connect(t, "con_1", named("web"))
		if code := quic.ended(t); code != link.CloseReplaced {
			t.Errorf("closed with %v", code)
		}
		if body, err := g.do(t, "con_1", ""); body != "web" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
	})
}

// newServer serves a hub's WebSocket.
func newServer(t *testing.T, g *testGateway) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(g.ServeWebSocket)}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + l.Addr().String()
}

// TestOldHTTP: HTTP/1.0 cannot be upgraded.
func TestOldHTTP(t *testing.T) {
	g := newWebGateway(t, Options{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.web, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: %s\r\n\r\n", link.WebSocketPath,
		link.Subprotocol)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("answer %v, %v", answer, err)
	}
}

// TestNewHTTP: over HTTP/2 and HTTP/3 nothing is upgraded, and an answer with headers
// about that would be malformed.
func TestNewHTTP(t *testing.T) {
	g := newWebGateway(t, Options{})
	for _, major := range []int{2, 3} {
		for _, header := range []http.Header{{}, {"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {link.Subprotocol}}} {
			r := httptest.NewRequest(http.MethodGet, link.WebSocketPath, nil)
			r.ProtoMajor, r.ProtoMinor, r.Header = major, 0, header
			w := httptest.NewRecorder()
			g.ServeWebSocket(w, r)
			if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "HTTP/1.1") {
				t.Errorf("HTTP/%d, %v: %d %q", major, header, w.Code, w.Body)
			}
			for _, name := range []string{"Connection", "Upgrade", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding"} {
				if w.Header()[name] != nil {
					t.Errorf("HTTP/%d: the answer has %s", major, name)
				}
			}
		}
	}
}
