package tunnel

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/freeport"
	"github.com/postern-dev/postern/tests/rig/wait"
)

const (
	// soon is the most that things which happen at once may take, in virtual time.
	soon = time.Second
	// patience is how long a test waits before it fails.
	patience = 2 * time.Minute
)

// testGateway is a hub that listens, and what connectors need to reach it.
type testGateway struct {
	*Hub
	addr    net.Addr
	web     string // URL of the HTTP server; "": connectors come over QUIC
	pipes   *pipes // to the HTTP server, in a bubble
	preauth string // what connectors show before their hello
	secrets Secrets
	sockets sync.WaitGroup // WebSockets of connectors that are open

	taking    sync.Mutex
	simulated []net.PacketConn // sockets of connectors in a bubble that are not used yet
}

func newSecrets(t testing.TB) Secrets {
	t.Helper()
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s := Secrets{Identity: key, Reset: make([]byte, 32), Token: make([]byte, 32)}
	_, _ = rand.Read(s.Reset)
	_, _ = rand.Read(s.Token)
	return s
}

// allow lets in every connector whose secret is "secret".
func allow(_ context.Context, id, secret string) (Connector, error) {
	if secret != "secret" {
		return Connector{}, errors.New("wrong")
	}
	return Connector{ID: id, Name: "name of " + id, Account: "default"}, nil
}

// newGateway listens on loopback.
func newGateway(t testing.TB, o Options) *testGateway {
	t.Helper()
	return newGatewayOn(t, listenFree(t), newSecrets(t), o)
}

func newGatewayOn(t testing.TB, conn net.PacketConn, s Secrets, o Options) *testGateway {
	t.Helper()
	if o.Authenticate == nil {
		o.Authenticate = allow
	}
	o.Version = "test"
	g := &testGateway{Hub: NewHub(o), addr: conn.LocalAddr(), secrets: s}
	g.handshakes = newHandshakes()
	if err := g.Listen(conn, s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.Close(ended)
	})
	return g
}

// limitPending replaces pendingPerAddress.
func (g *testGateway) limitPending(n int) {
	g.pending.mu.Lock()
	defer g.pending.mu.Unlock()
	g.pending.perAddress = n
}

// listenFree listens at an address at which a gateway can listen again after it was killed: the
// kernel gives it to no other socket meanwhile.
func listenFree(t testing.TB) *net.UDPConn {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := listenAgain(addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func listenLoopback(t testing.TB) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// socket returns a new socket of a connector.
func (g *testGateway) socket(t testing.TB) net.PacketConn {
	t.Helper()
	g.taking.Lock()
	defer g.taking.Unlock()
	if len(g.simulated) == 0 {
		return listenLoopback(t)
	}
	next := g.simulated[0]
	g.simulated = g.simulated[1:]
	t.Cleanup(func() { _ = next.Close() })
	return next
}

// testConnector is the smallest connector.
type testConnector struct {
	conn     *link.Conn
	socket   net.PacketConn
	stream   *quic.Stream
	control  *link.Control
	welcome  link.Welcome
	messages chan link.Message // after the welcome, or all of a pairing
	serving  sync.WaitGroup
}

func hello(id string) link.Hello {
	return link.Hello{
		Connector: id, Secret: "secret", Instance: "instance", Name: "host", Version: "1", OS: "linux/amd64",
		Upstreams: []string{"ollama"},
	}
}

// connect brings a connector up, and waits for its welcome.
func (g *testGateway) connect(t testing.TB, id string, h http.Handler) *testConnector {
	t.Helper()
	c, err := g.dial(t, g.socket(t), hello(id), h)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connection returns a connection without a hello: over QUIC from a socket, or
// over the gateway's WebSocket.
func (g *testGateway) connection(ctx context.Context, socket net.PacketConn) (*link.Conn, error) {
	return g.connectionWith(ctx, socket, link.ConnectorQUIC(0))
}

func (g *testGateway) connectionWith(ctx context.Context, socket net.PacketConn,
	config *quic.Config,
) (*link.Conn, error) {
	if g.web != "" {
		return g.openWebSocket(ctx, config)
	}
	conn, err := quic.Dial(ctx, socket, g.addr, link.ConnectorTLS(g.preauth, g.Pin()), config)
	if err != nil {
		return nil, err
	}
	return &link.Conn{Conn: conn}, nil
}

// overBothReal is overBoth with real sockets, in real time: for what takes processors
// and not time.
func overBothReal(t *testing.T, test func(t *testing.T, newGateway gatewayMaker)) {
	t.Run(link.TransportQUIC, func(t *testing.T) { test(t, newGateway) })
	t.Run(link.TransportWebSocket, func(t *testing.T) { test(t, newWebGateway) })
}

type gatewayMaker func(t testing.TB, o Options) *testGateway

// held counts the sessions that the hub has, live and draining.
func (g *testGateway) held() (n int) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, sessions := range g.all {
		n += len(sessions)
	}
	return n
}

// dial sends a hello from a socket. Its error is the connection's, or a Deny.
func (g *testGateway) dial(t testing.TB, socket net.PacketConn, hello link.Hello,
	h http.Handler,
) (*testConnector, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	t.Cleanup(func() { _ = socket.Close() })
	conn, err := g.connection(ctx, socket)
	if err != nil {
		return nil, err
	}
	c, err := g.handshake(t, conn, hello, h)
	if c != nil {
		c.socket = socket
	}
	return c, err
}

// handshake sends a hello on a connection.
func (g *testGateway) handshake(t testing.TB, conn *link.Conn, hello link.Hello,
	h http.Handler,
) (*testConnector, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := &testConnector{conn: conn, messages: make(chan link.Message, 64)}
	t.Cleanup(func() {
		_ = c.conn.Close(link.CloseNone, "")
		c.serving.Wait()
	})
	var err error
	if c.stream, err = c.conn.OpenStreamSync(ctx); err != nil {
		return nil, err
	}
	c.control = link.NewControl(c.stream)
	if err := c.control.Send(hello); err != nil {
		return nil, err
	}
	c.serving.Go(func() { c.serve(h) })
	m, err := c.control.Receive()
	switch m := m.(type) {
	case link.Welcome:
		c.welcome = m
		c.serving.Go(c.listen)
		return c, nil
	case link.Pending, link.Grant:
		c.messages <- m
		c.serving.Go(c.listen)
		return c, nil
	case link.Deny:
		c.serving.Go(c.listen) // sees the close
		return c, m
	default:
		if deny, ok := link.Denied(err); ok { // the close has overtaken it
			return c, deny
		}
		return c, err
	}
}

func (c *testConnector) serve(h http.Handler) {
	for {
		s, err := c.conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		c.serving.Go(func() { _ = link.Serve(s, h) })
	}
}

func (c *testConnector) listen() {
	defer close(c.messages)
	for {
		m, err := c.control.Receive()
		if err != nil {
			return
		}
		c.messages <- m
	}
}

// next returns the next control message.
func (c *testConnector) next(t testing.TB) link.Message {
	t.Helper()
	return wait.For(t, c.messages, "a control message")
}

// ended waits for the end of the connection and returns its close code.
func (c *testConnector) ended(t testing.TB) link.CloseCode {
	t.Helper()
	wait.For(t, c.conn.Context().Done(), "the end of the connection")
	code, ok := link.CloseReason(context.Cause(c.conn.Context()))
	if !ok {
		t.Fatalf("the connection ended with %v", context.Cause(c.conn.Context()))
	}
	return code
}

func post(body string) *http.Request {
	return &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: "/v1/chat/completions"}, Host: "ollama",
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// mustSession waits for a connector's session.
func (g *testGateway) mustSession(t testing.TB, id string) (s *Session) {
	t.Helper()
	wait.Until(t, "a session of "+id, func() (ok bool) {
		s, ok = g.Session(id)
		return ok
	})
	return s
}

// do sends one request to a connector and reads the answer.
func (g *testGateway) do(t testing.TB, id, body string) (string, error) {
	t.Helper()
	return send(t.Context(), g.mustSession(t, id), body)
}

func send(ctx context.Context, s *Session, body string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := s.RoundTrip(post(body).WithContext(ctx))
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	return string(b), err
}

// echo answers with the request's body.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	_, _ = w.Write(b)
})

// named answers with a name, so that a test sees who answered.
func named(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

// gate is a handler that answers when it is opened.
type gate struct {
	started chan struct{}
	open    chan struct{}
	begins  bool // the answer begins before it is open
}

func newGate() *gate { return &gate{started: make(chan struct{}, 4096), open: make(chan struct{})} }

func (h *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.begins {
		_ = http.NewResponseController(w).Flush()
	}
	h.started <- struct{}{}
	select {
	case <-h.open:
		_, _ = io.WriteString(w, "at last")
	case <-r.Context().Done():
	}
}

// result is what a request in the background came to.
type result struct {
	body string
	err  error
	at   time.Time
}

func background(t testing.TB, s *Session) <-chan result {
	done := make(chan result, 1)
	go func() {
		body, err := send(t.Context(), s, "{}")
		done <- result{body, err, time.Now()}
	}()
	return done
}

func wantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error = %v, want %v", err, want)
	}
}
