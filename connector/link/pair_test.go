package link

import (
	"cmp"
	"context"
	"crypto/tls"
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
)

// patience is how long a test waits before it fails.
const patience = 2 * time.Minute

// pair is a tunnel over loopback: both ends of one connection.
type pair struct {
	gateway, connector *Conn
	served             chan error // results of Serve, if anybody reads them
}

// pairing connects a gateway and a connector whose streams h serves, with a limit of
// requests or the default one.
type pairing func(t testing.TB, h http.Handler, limit ...int) *pair

// overBoth runs a test over UDP and over a byte stream.
func overBoth(t *testing.T, test func(t *testing.T, newPair pairing)) {
	t.Run(TransportQUIC, func(t *testing.T) { test(t, newPair) })
	t.Run(TransportWebSocket, func(t *testing.T) { test(t, newWebSocketPair) })
}

func listenLoopback(t testing.TB) net.PacketConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func newTestIdentity(t testing.TB) (cert tls.Certificate, pin string) {
	t.Helper()
	key, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if cert, pin, err = Identity(key); err != nil {
		t.Fatal(err)
	}
	return cert, pin
}

// newPair connects over QUIC.
func newPair(t testing.TB, h http.Handler, limit ...int) *pair {
	t.Helper()
	return newPairOver(t, listenLoopback(t), listenLoopback(t), h, limit...)
}

func newPairOver(t testing.TB, gatewaySocket, connectorSocket net.PacketConn, h http.Handler, limit ...int) *pair {
	t.Helper()
	cert, pin := newTestIdentity(t)
	gateway := &quic.Transport{Conn: gatewaySocket}
	l, err := gateway.Listen(GatewayTLS(cert), GatewayQUIC())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	connector := &quic.Transport{Conn: connectorSocket}
	dialed, err := connector.Dial(ctx, gatewaySocket.LocalAddr(), ConnectorTLS("", pin), ConnectorQUIC(cmp.Or(limit...)))
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = gateway.Close()
		_ = connector.Close()
		_ = gatewaySocket.Close()
		_ = connectorSocket.Close()
	})
	return startPair(t, &Conn{Conn: accepted}, &Conn{Conn: dialed}, h)
}

// newWebSocketPair connects over TCP.
func newWebSocketPair(t testing.TB, h http.Handler, limit ...int) *pair {
	t.Helper()
	return newWebSocketPairOver(t, tcpPipe, h, limit...)
}

// lasting is a life without an end of its own.
func lasting(ctx context.Context) context.Context { return ctx }

// tcpPipe returns both ends of a TCP connection over loopback.
func tcpPipe(t testing.TB) (gateway, connector net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connector, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	gateway, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return gateway, connector
}

func newWebSocketPairOver(t testing.TB, pipe func(testing.TB) (net.Conn, net.Conn), h http.Handler,
	limit ...int,
) *pair {
	t.Helper()
	cert, pin := newTestIdentity(t)
	gatewayEnd, connectorEnd := pipe(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var gateway *Conn
	var gatewayErr error
	var accepting sync.WaitGroup
	accepting.Go(func() {
		gateway, gatewayErr = WebSocketGateway(ctx, gatewayEnd, GatewayTLS(cert), lasting)
	})
	connector, err := WebSocketConnector(ctx, connectorEnd, ConnectorTLS("", pin), ConnectorQUIC(cmp.Or(limit...)))
	accepting.Wait()
	if err := errors.Join(err, gatewayErr); err != nil {
		t.Fatal(err)
	}
	return startPair(t, gateway, connector, h)
}

// startPair serves the connector's streams until the test ends.
func startPair(t testing.TB, gateway, connector *Conn, h http.Handler) *pair {
	p := &pair{gateway: gateway, connector: connector, served: make(chan error, 16)}
	var serving sync.WaitGroup
	if h != nil {
		serving.Go(func() { p.serve(&serving, h) })
	}
	t.Cleanup(func() {
		_ = p.gateway.Close(CloseNone, "")
		_ = p.connector.Close(CloseNone, "")
		serving.Wait()
	})
	return p
}

func (p *pair) serve(serving *sync.WaitGroup, h http.Handler) {
	for {
		s, err := p.connector.AcceptStream(context.Background())
		if err != nil {
			return
		}
		serving.Go(func() {
			err := Serve(s, h)
			select {
			case p.served <- err:
			default:
			}
		})
	}
}

// roundTrip sends one request.
func (p *pair) roundTrip(ctx context.Context, r *http.Request) (*http.Response, error) {
	s, err := p.gateway.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return RoundTrip(ctx, s, r, nil)
}

// post returns a request as the gateway makes them.
func post(body string) *http.Request {
	return &http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Path: "/v1/chat/completions"},
		Host:          "ollama",
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}

// do sends a request and reads the answer.
func (p *pair) do(t testing.TB, r *http.Request) (*http.Response, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := p.roundTrip(ctx, r)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return answer, string(b), err
}

// mustDo is do without an error.
func (p *pair) mustDo(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	answer, body, err := p.do(t, r)
	if err != nil {
		t.Fatal(err)
	}
	return answer, body
}

// wantError checks what an error wraps.
func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error = %v, want %v", err, want)
	}
}
