package agent

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// realGateway is a hub behind a network that may lose all UDP, with an HTTP server for
// WebSockets.
type realGateway struct {
	*tunnel.Hub
	relay *relay
	web   *httptest.Server
	token link.Token
}

// session waits for the connector's session. Any goroutine may call it.
func (g *realGateway) session(ctx context.Context) (*tunnel.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		if s, ok := g.Session(g.token.Connector); ok {
			return s, nil
		}
	}
	return nil, context.Cause(ctx)
}

func startRealGateway(t *testing.T) *realGateway {
	t.Helper()
	identity, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	secrets := tunnel.Secrets{Identity: identity, Reset: make([]byte, 32), Token: make([]byte, 32)}
	_, _ = rand.Read(secrets.Reset)
	_, _ = rand.Read(secrets.Token)
	hub := tunnel.NewHub(tunnel.Options{Authenticate: func(_ context.Context, id, _ string) (tunnel.Connector, error) {
		return tunnel.Connector{ID: id, Name: id, Account: "default"}, nil
	}})
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Listen(socket, secrets); err != nil {
		t.Fatal(err)
	}
	g := &realGateway{
		Hub: hub, relay: newRelay(t, socket.LocalAddr()),
		web: httptest.NewServer(http.HandlerFunc(hub.ServeWebSocket)),
	}
	g.token = link.Token{
		Server: g.relay.front.LocalAddr().String(), URL: g.web.URL, Pin: hub.Pin(),
		Connector: testToken.Connector, Secret: testToken.Secret,
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = hub.Close(ended)
		g.web.Close()
	})
	return g
}

// helloServer answers with three events, over some 30 ms.
func helloServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, "data: x\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// startReal runs an agent for a real gateway until the test ends.
func startReal(t *testing.T, g *realGateway, change func(*instance)) *runningAgent {
	t.Helper()
	return startAgent(t, &fakeGateway{t: t, token: g.token}, helloServer(t), change)
}

// transport returns the transport of the connector's tunnel, or "".
func (g *realGateway) transport() string {
	if s := g.Sessions(); len(s) == 1 {
		return s[0].Transport
	}
	return ""
}

// ask sends one request as the gateway's routing does.
func (g *realGateway) ask(ctx context.Context) error {
	body, err := g.answer(ctx)
	if err == nil && body != strings.Repeat("data: x\n\n", 3) {
		err = errors.New("the answer is not complete: " + body)
	}
	return err
}

// answer is like ask, but accepts any answer of the upstream.
func (g *realGateway) answer(ctx context.Context) (string, error) {
	for {
		s, err := g.session(ctx)
		if err != nil {
			return "", err
		}
		answer, err := s.RoundTrip(post(ctx, "{}"))
		if errors.Is(err, link.ErrNotSent) {
			continue
		}
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return string(body), err
	}
}

func (g *realGateway) mustAsk(t *testing.T) {
	t.Helper()
	if err := g.ask(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestUDPBlockedFromTheStart(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	g.relay.blocked.Store(true)
	delay := func(a *instance) time.Duration { return a.legs[0].runners(link.Edge{})[1].Delay }
	a := startReal(t, g, func(a *instance) {
		if a.legs[0].webDelay = newAgent(Options{}).newInstance(nil).legs[0].webDelay; delay(a) != webSocketDelay {
			t.Errorf("the head start of QUIC is %v", delay(a))
		}
		a.dialLimit = forever // or the WebSocket begins as QUIC fails
	})
	wait.Until(t, "a tunnel", func() bool { return g.transport() == "websocket" })
	g.mustAsk(t)
	if n := g.Counters().Connected; n != 1 || !strings.Contains(a.log.String(), "transport=websocket") {
		t.Errorf("%d tunnels", n)
	}
	g.Disconnect(g.token.Connector, link.CloseShutdown)
	wait.Until(t, "the next tunnel", func() bool { return g.Counters().Connected == 2 })
	a.stop()
	if err := wait.For(t, a.result, "the agent's end"); err != nil || delay(a.instance) != 0 {
		t.Errorf("%v; the next one waits %v for QUIC again", err, delay(a.instance))
	}
}

func TestUDPBlockedInMidLife(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	startReal(t, g, func(a *instance) { a.lostAfter = 3 * time.Second })
	wait.Until(t, "a tunnel", func() bool { return g.transport() != "" })
	if got := g.transport(); got != "quic" {
		t.Errorf("the tunnel goes over %s", got)
	}
	g.mustAsk(t)
	g.relay.blocked.Store(true)
	wait.Until(t, "the other transport", func() bool { return g.transport() == "websocket" })
	g.mustAsk(t)
}

// TestChangeUnderLoad: the change to QUIC loses no request.
func TestChangeUnderLoad(t *testing.T) {
	g := startRealGateway(t)
	g.relay.blocked.Store(true)
	startReal(t, g, func(a *instance) { a.legs[0].webDelay, a.firstUpgrade = 0, 100*time.Millisecond })
	wait.Until(t, "a tunnel", func() bool { return g.transport() == "websocket" })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	var asked atomic.Int32
	for range 16 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if err := g.ask(t.Context()); err != nil {
					t.Error(err)
				}
				asked.Add(1)
			}
		})
	}
	more := func() {
		at := asked.Load()
		wait.Until(t, "more requests", func() bool { return asked.Load() >= at+50 })
	}
	more()
	g.relay.blocked.Store(false)
	wait.Until(t, "the way back to QUIC", func() bool { return g.transport() == "quic" })
	more()
	stop()
	clients.Wait()
	if n := g.Counters(); n.Failed != 0 || n.Connected != 2 || n.Replaced != 1 {
		t.Errorf("%d requests, %+v", asked.Load(), n)
	}
}

func TestOnlyWebSocket(t *testing.T) {
	g := startRealGateway(t)
	startReal(t, g, func(a *instance) { a.config.transport, a.firstUpgrade = config.TransportWebSocket, time.Millisecond })
	wait.Until(t, "a tunnel", func() bool { return g.transport() == "websocket" })
	for range 5 {
		g.mustAsk(t) // much longer than an upgrade is put off
	}
	if g.transport() != "websocket" {
		t.Error("it changed to QUIC")
	}
}

// TestThroughAProxy: HTTPS_PROXY names a proxy with CONNECT.
func TestThroughAProxy(t *testing.T) {
	g := startRealGateway(t)
	secure := httptest.NewTLSServer(http.HandlerFunc(g.ServeWebSocket))
	defer secure.Close()
	var connects atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
			return
		}
		connects.Add(1)
		far, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		_, _ = io.Copy(near, far)
		_ = near.Close()
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	pool := x509.NewCertPool()
	pool.AddCert(secure.Certificate())
	g.token.URL = secure.URL
	g.relay.blocked.Store(true)
	a := startReal(t, g, func(a *instance) {
		a.legs[0].webDelay, a.config.web.Proxy, a.config.web.Roots = 0, http.ProxyURL(at), pool
	})
	wait.Until(t, "a tunnel", func() bool { return g.transport() == "websocket" })
	g.mustAsk(t)
	if connects.Load() != 1 || strings.Contains(a.log.String(), "certificate") {
		t.Errorf("%d connections through the proxy", connects.Load())
	}
}
