package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// countWeb counts requests for a WebSocket.
func countWeb(t *testing.T, g *realGateway) *atomic.Int32 {
	t.Helper()
	var asked atomic.Int32
	web := g.web.Config.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		web.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	g.token.URL = server.URL
	return &asked
}

// TestSlowHandshakeIsNotGivenUp: a handshake pauses after the first packet of the gateway, as at a busy
// one. The agent does not start it again.
func TestSlowHandshakeIsNotGivenUp(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	asked := countWeb(t, g)
	g.relay.stall.Store(int64(3 * time.Second))
	var dials atomic.Int32
	startReal(t, g, func(a *instance) {
		open := a.config.quic.Open
		a.config.quic.Open = func(network string) (dial.Socket, error) {
			dials.Add(1)
			return open(network)
		}
	})
	wait.Until(t, "the connector is online", func() bool { return g.transport() != "" })
	if got := g.transport(); got != link.TransportQUIC || asked.Load() != 0 || dials.Load() != 1 {
		t.Errorf("over %s, after %d attempts and %d WebSockets", got, dials.Load(), asked.Load())
	}
}

// refuser is an overloaded gateway: it refuses connections, or ends their handshakes.
func refuser(t *testing.T, admit func(context.Context, *quic.ClientInfo) (context.Context, error),
	config func(*tls.ClientHelloInfo) (*tls.Config, error),
) (address, pin string) {
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
	transport := &quic.Transport{Conn: socket, ConnContext: admit}
	conf := link.GatewayTLS(cert)
	conf.GetConfigForClient = config
	if _, err := transport.Listen(conf, link.GatewayQUIC()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		transport.Close()
		socket.Close()
	})
	return socket.LocalAddr().String(), pin
}

// TestBusyGatewayIsNotRushed: a gateway that refuses over UDP is not dialed over HTTPS, unless
// it refuses again and again: a device in between may refuse in its name.
func TestBusyGatewayIsNotRushed(t *testing.T) {
	full := errors.New("full")
	for name, test := range map[string]struct {
		admit  func(context.Context, *quic.ClientInfo) (context.Context, error)
		config func(*tls.ClientHelloInfo) (*tls.Config, error)
	}{
		"at once":       {admit: func(context.Context, *quic.ClientInfo) (context.Context, error) { return nil, full }},
		"after a while": {config: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, full }},
	} {
		t.Run(name, func(t *testing.T) {
			address, pin := refuser(t, test.admit, test.config)
			g := startRealGateway(t)
			asked := countWeb(t, g)
			g.token.Server, g.token.Pin = address, pin // the WebSocket leads to a gateway with another pin
			var refusals atomic.Int32
			a := startReal(t, g, func(a *instance) {
				a.legs[0].retry.random = func() float64 {
					if asked.Load() == 0 {
						refusals.Add(1)
					}
					return 0
				}
			})
			want := `msg="cannot connect" reason="dialing ` + address + ": " + dial.ErrBusy.Error() + `" retry_in=`
			wait.Until(t, "the log line "+want, func() bool { return strings.Contains(a.log.String(), want) })
			wait.Until(t, "it tries the WebSocket", func() bool { return asked.Load() > 0 })
			if n := refusals.Load(); n != busyAttempts {
				t.Errorf("it was refused %d times before that, not %d", n, busyAttempts)
			}
		})
	}
}

func TestRetryPausesWhenBusy(t *testing.T) {
	for _, err := range []error{dial.ErrBusy, dial.ErrNotReady} {
		r := retry{random: func() float64 { return 1 }}
		for i, want := range []time.Duration{
			500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
			8 * time.Second, busyPause, busyPause, busyPause,
		} {
			if got := r.pause(ending{err: err}); got != want {
				t.Errorf("%v: pause %d is %v, want %v", err, i+1, got, want)
			}
		}
	}
}
