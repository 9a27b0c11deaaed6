package link

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/tests/rig/wait"
)

// controls opens the control stream at both ends. The connector speaks first:
// over QUIC nothing of it is there before.
func (p *pair) controls(t *testing.T) (gateway, connector *quic.Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	accepted := make(chan *quic.Stream, 1)
	go func() {
		s, err := p.gateway.AcceptStream(ctx)
		if err != nil {
			t.Error(err)
		}
		accepted <- s
	}()
	connector, err := p.connector.OpenStreamSync(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := NewControl(connector).Send(Hello{Connector: "con_1"}); err != nil {
		t.Fatal(err)
	}
	gateway = <-accepted
	if m, err := NewControl(gateway).Receive(); m == nil || err != nil {
		t.Fatalf("received %v, %v", m, err)
	}
	return gateway, connector
}

// TestCloseSaysWhy: what was sent before the close and is read in time arrives,
// and then the code.
func TestCloseSaysWhy(t *testing.T) {
	overBothVirtual(t, func(t *testing.T, newPair pairing) {
		for _, byGateway := range []bool{true, false} {
			h := newWaiting("data: 1\n\n")
			p := newPair(t, h)
			g, c := p.controls(t)
			a, err := p.roundTrip(t.Context(), post("{}"))
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			near, far, stream := p.gateway, p.connector, c
			if !byGateway {
				near, far, stream = p.connector, p.gateway, g
			}
			read := make(chan error, 1)
			go func() {
				_, err := NewControl(stream).Receive()
				read <- err
			}()
			at := time.Now()
			if err := near.Close(CloseReplaced, "a newer one"); err != nil {
				t.Fatal(err)
			}
			if near.Context().Err() == nil {
				t.Error("a closed connection lives on")
			}
			if _, remote := CloseReason(context.Cause(near.Context())); remote {
				t.Error("this side's close counts as the other's")
			}
			<-far.Context().Done()
			if d := time.Since(at); d > soon {
				t.Errorf("noticed after %v", d)
			}
			if code, ok := CloseReason(context.Cause(far.Context())); !ok || code != CloseReplaced {
				t.Errorf("ended with %v", context.Cause(far.Context()))
			}
			if err := <-read; !errors.Is(err, net.ErrClosed) {
				t.Errorf("the control stream ended with %v", err)
			}
			_, err = a.Body.Read(make([]byte, 100))
			for err == nil {
				_, err = a.Body.Read(make([]byte, 100))
			}
			wantError(t, err, ErrTunnelLost)
			h.check(t, at)
			if _, err := p.gateway.OpenStreamSync(t.Context()); err == nil {
				t.Error("a closed connection has streams")
			}
			if _, err := p.connector.AcceptStream(t.Context()); err == nil {
				t.Error("a closed connection has requests")
			}
		}
	})
}

// TestBrokenPipe: a connection that breaks has no code.
func TestBrokenPipe(t *testing.T) {
	var cut net.Conn
	p := newWebSocketPairOver(t, func(t testing.TB) (net.Conn, net.Conn) {
		gateway, connector := tcpPipe(t)
		cut = gateway
		return gateway, connector
	}, newWaiting(""))
	p.controls(t)
	_ = cut.Close()
	for _, end := range []*Conn{p.gateway, p.connector} {
		<-end.Context().Done()
		cause := context.Cause(end.Context())
		if _, ok := CloseReason(cause); ok || Silent(cause) || Restarted(cause) || !errors.Is(cause, net.ErrClosed) {
			t.Errorf("ended with %v", cause)
		}
	}
}

// TestWebSocketPin: the connector knows the gateway by its key alone.
func TestWebSocketPin(t *testing.T) {
	cert, _ := newTestIdentity(t)
	_, pin := newTestIdentity(t)
	gateway, connector := tcpPipe(t)
	go func() { _, _ = WebSocketGateway(t.Context(), gateway, GatewayTLS(cert), lasting) }()
	_, err := WebSocketConnector(t.Context(), connector, ConnectorTLS("", pin), ConnectorQUIC(0))
	wantError(t, err, ErrPin)
}

// TestThousandRequests: as many at once as a connector takes, and more, that wait.
func TestThousandRequests(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		open := make(chan struct{})
		arrived := make(chan struct{}, 2*DefaultMaxRequests)
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived <- struct{}{}
			<-open
			_, _ = w.Write([]byte("fine"))
		}))
		const n = DefaultMaxRequests + 200
		results := make(chan error, n)
		for range n {
			go func() {
				_, _, err := p.do(t, post("{}"))
				results <- err
			}()
		}
		for range DefaultMaxRequests {
			wait.For(t, arrived, "all requests run at once")
		}
		close(open)
		for range n {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
	})
}
