package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestMain runs many of the parallel tests at once, as they wait and do not compute.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// patience bounds waits for events that must come; a passing test takes less on the slowest
// machine. forever is longer than any test: events that it bounds do not happen.
const (
	patience = time.Minute
	forever  = time.Hour
)

// unhurried makes an agent wait long before it assumes silence, as the machine may be slow.
// Tests of silence have limits of their own.
func (a *instance) unhurried() {
	a.lostAfter, a.confirmLimit, a.legs[0].webDelay = forever, forever, forever
}

// testToken is a well-formed token that no gateway accepts.
var testToken = link.Token{
	Server:    "gw.example.com:7443",
	Pin:       "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg",
	Connector: "con_aaaaaaaaaaaaaaaaaaaaaaaaaa",
	Secret:    "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I",
}

// fakeGateway implements what these tests need of the gateway's end of the protocol, over real
// QUIC on loopback.
type fakeGateway struct {
	t        *testing.T
	identity []byte
	token    link.Token
	socket   *net.UDPConn
	sessions chan *fakeSession // one for each hello with a welcome

	transport string // in the configuration of agents

	mu      sync.Mutex
	deny    *link.Deny // answers every hello, unless nil
	denying func()     // is called before each answer, unless nil
	silent  bool       // answers no pings
	mute    bool       // answers no hello
	pending bool       // answers a claim with Pending
	hellos  int
	conns   []*quic.Conn
	running sync.WaitGroup
}

// fakeSession is one tunnel.
type fakeSession struct {
	gateway *fakeGateway
	conn    *quic.Conn
	control *link.Control
	hello   link.Hello
	got     chan link.Message // all messages except pings and reports
	reports chan link.Report
	pings   atomic.Int32
}

func startGateway(t *testing.T) *fakeGateway {
	t.Helper()
	identity, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeGateway{t: t, identity: identity, sessions: make(chan *fakeSession, 100), transport: config.TransportQUIC}
	g.listen(freeAddr(t))
	t.Cleanup(func() {
		g.kill()
		g.running.Wait()
	})
	return g
}

// listen begins to accept tunnels. With the same address and identity, this is a restart of the
// same gateway.
func (g *fakeGateway) listen(address string) {
	g.t.Helper()
	cert, pin, err := link.Identity(g.identity)
	if err != nil {
		g.t.Fatal(err)
	}
	udp, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		g.t.Fatal(err)
	}
	if g.socket, err = net.ListenUDP("udp", udp); err != nil {
		g.t.Fatal(err)
	}
	g.token = link.Token{
		Server: g.socket.LocalAddr().String(), Pin: pin, Connector: testToken.Connector,
		Secret: testToken.Secret,
	}
	key := quic.StatelessResetKey(sha256.Sum256(g.identity))
	transport := &quic.Transport{Conn: g.socket, ConnectionIDLength: 8, StatelessResetKey: &key}
	listener, err := transport.Listen(link.GatewayTLS(cert), link.GatewayQUIC())
	if err != nil {
		g.t.Fatal(err)
	}
	g.running.Go(func() {
		for {
			conn, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			g.running.Go(func() { g.tunnel(conn) })
		}
	})
}

// kill ends the gateway without closing its connections.
func (g *fakeGateway) kill() { g.socket.Close() }

// lose receives n packets at the address of a gateway that was killed, and answers none.
func (g *fakeGateway) lose(t *testing.T, packets int) {
	t.Helper()
	socket, err := net.ListenUDP("udp", g.socket.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_ = socket.SetReadDeadline(time.Now().Add(patience))
	for range packets {
		if _, _, err := socket.ReadFromUDP(make([]byte, 2048)); err != nil {
			t.Fatal(err)
		}
	}
}

// hangUp closes all tunnels.
func (g *fakeGateway) hangUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, conn := range g.conns {
		conn.CloseWithError(quic.ApplicationErrorCode(link.CloseDrained), "")
	}
}

// set changes the gateway's behavior.
func (g *fakeGateway) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// count returns the number of hellos so far.
func (g *fakeGateway) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hellos
}

func (g *fakeGateway) tunnel(conn *quic.Conn) {
	g.set(func() { g.conns = append(g.conns, conn) })
	stream, err := conn.AcceptStream(conn.Context())
	if err != nil {
		return
	}
	control := link.NewControl(stream)
	message, err := control.Receive()
	if err != nil {
		return
	}
	hello, ok := message.(link.Hello)
	if !ok || hello.Check() != nil {
		g.t.Errorf("first message %+v", message)
		return
	}
	g.mu.Lock()
	if !hello.DryRun {
		g.hellos++
	}
	deny, mute, denying := g.deny, g.mute, g.denying
	var welcome link.Message = link.Welcome{Session: "s1", Version: "test", HeartbeatMillis: 30}
	if g.pending {
		welcome = link.Pending{ExpiresAt: time.Now().Add(time.Minute)}
	}
	g.mu.Unlock()
	switch {
	case hello.DryRun && deny == nil && !mute:
		control.Send(link.Welcome{Version: "test"})
		<-conn.Context().Done()
		return
	case mute:
		return
	case deny != nil:
		if denying != nil {
			denying()
		}
		control.Send(*deny)
		<-conn.Context().Done() // the connector has read it and closes
		return
	}
	if err := control.Send(welcome); err != nil {
		return
	}
	s := &fakeSession{
		gateway: g, conn: conn, control: control, hello: hello, got: make(chan link.Message, 100),
		reports: make(chan link.Report, 100),
	}
	s.listen()
}

// listen answers pings. The first ping shows that the connector has read its welcome.
func (s *fakeSession) listen() {
	for {
		message, err := s.control.Receive()
		if err != nil {
			return
		}
		switch message := message.(type) {
		case link.Ping:
		case link.Report:
			s.reports <- message
			continue
		default:
			s.got <- message
			continue
		}
		if s.pings.Add(1) == 1 {
			s.gateway.sessions <- s
		}
		s.gateway.mu.Lock()
		silent := s.gateway.silent
		s.gateway.mu.Unlock()
		if !silent {
			s.control.Send(link.Pong{HeartbeatMillis: 30})
		}
	}
}

// session waits for the next tunnel.
func (g *fakeGateway) session() *fakeSession {
	g.t.Helper()
	return wait.For(g.t, g.sessions, "a tunnel")
}

// sessionAfterWaking is session for an agent with long pauses. The agent may still be in an
// attempt that fails, and begin its pause after that.
func (g *fakeGateway) sessionAfterWaking(a *runningAgent) *fakeSession {
	g.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		wake(a.legs[0])
		select {
		case s := <-g.sessions:
			return s
		case <-time.After(100 * time.Millisecond):
		}
	}
	g.t.Fatalf("waited %v for a tunnel", patience)
	return nil
}

// lively waits for a tunnel whose pings are answered.
func (g *fakeGateway) lively() *fakeSession {
	g.t.Helper()
	for {
		s := g.session()
		wait.Until(g.t, "pings", func() bool { return s.pings.Load() >= 3 || s.conn.Context().Err() != nil })
		if s.conn.Context().Err() == nil {
			return s
		}
	}
}

// roundTrip sends one request down the tunnel.
func (s *fakeSession) roundTrip(r *http.Request) (*http.Response, error) {
	stream, err := s.conn.OpenStreamSync(r.Context())
	if err != nil {
		return nil, err
	}
	return link.RoundTrip(r.Context(), stream, r, nil)
}

func (s *fakeSession) close(code link.CloseCode) {
	s.conn.CloseWithError(quic.ApplicationErrorCode(code), "")
}

// runningAgent is an agent that runs.
type runningAgent struct {
	*instance
	log    *logBuffer
	stop   context.CancelFunc
	result chan error
}

// startAgent runs an agent for the upstream at base until the test ends. change may adjust the
// agent first.
func startAgent(t *testing.T, g *fakeGateway, base string, change func(*instance)) *runningAgent {
	t.Helper()
	log := &logBuffer{}
	a, err := New(config.Config{
		TunnelToken: g.token.Encode(), Transport: g.transport,
		Upstreams: map[string]config.Upstream{"box": {BaseURL: base + "/v1"}},
	},
		Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	first := a.current.Load()
	first.unhurried()
	if change != nil {
		change(first)
	}
	ctx, stop := context.WithCancel(t.Context())
	running := &runningAgent{instance: first, log: log, stop: stop, result: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		running.result <- a.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		select { // the gateway need not take part in the drain
		case <-done:
		case <-time.After(20 * time.Millisecond):
			g.hangUp()
			wait.For(t, done, "the agent's end")
		}
		if t.Failed() {
			t.Logf("the agent's log:\n%s", log)
		}
		if bytes.Contains([]byte(log.String()), []byte(g.token.Secret)) {
			t.Error("the log contains the connector's secret")
		}
	})
	return running
}

// logBuffer is a log that tests can read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// wake wakes a leg that waits for its next attempt.
func wake(l *leg) {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
