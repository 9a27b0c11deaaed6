package link

import (
	"context"
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

// pair is a tunnel over loopback: both ends of one connection.
type pair struct {
	gateway, connector *quic.Conn
	served             chan error // results of Serve, if anybody reads them
}

// newPair connects a gateway and a connector whose streams h serves.
func newPair(t testing.TB, h http.Handler) *pair {
	t.Helper()
	return newPairOver(t, listenLoopback(t), listenLoopback(t), h)
}

func listenLoopback(t testing.TB) net.PacketConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func newPairOver(t testing.TB, gatewaySocket, connectorSocket net.PacketConn, h http.Handler) *pair {
	t.Helper()
	key, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	cert, pin, err := Identity(key)
	if err != nil {
		t.Fatal(err)
	}
	gateway := &quic.Transport{Conn: gatewaySocket}
	l, err := gateway.Listen(GatewayTLS(cert), GatewayQUIC())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	connector := &quic.Transport{Conn: connectorSocket}
	p := &pair{served: make(chan error, 16)}
	p.connector, err = connector.Dial(ctx, gatewaySocket.LocalAddr(), ConnectorTLS(pin), ConnectorQUIC())
	if err != nil {
		t.Fatal(err)
	}
	p.gateway, err = l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(&serving, h) })
	t.Cleanup(func() {
		_ = p.gateway.CloseWithError(0, "")
		_ = p.connector.CloseWithError(0, "")
		serving.Wait()
		_ = gateway.Close()
		_ = connector.Close()
		_ = gatewaySocket.Close()
		_ = connectorSocket.Close()
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
	return RoundTrip(ctx, s, r, RoundTripOptions{})
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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
