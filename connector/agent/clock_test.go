package agent

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// decades is enough to be out of the time of httptest's certificate, 1970 to 2084.
const decades = 60 * (365*24 + 6) * time.Hour

// TestWrongClock: a connector whose clock is decades off connects all the same,
// over both transports. Over HTTPS it says that the clock may be why it cannot
// verify the certificate outside.
func TestWrongClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"behind": -decades, "ahead": decades} {
		for _, transport := range []string{TransportQUIC, TransportWebSocket} {
			t.Run(name+" over "+transport, func(t *testing.T) {
				g := startRealGateway(t)
				secure := httptest.NewTLSServer(http.HandlerFunc(g.ServeWebSocket))
				defer secure.Close()
				secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
				pool := x509.NewCertPool()
				pool.AddCert(secure.Certificate())
				g.token.URL = secure.URL
				now := func() time.Time { return time.Now().Add(off) }
				a := startReal(t, g, func(a *Agent) {
					a.transport = transport
					a.dialer.tls.Time, a.web.inner.Time, a.web.now, a.web.roots = now, now, now, pool
				})
				eventually(t, "a tunnel", func() bool { return g.transport() == transport })
				g.mustAsk(t)
				if got := strings.Contains(a.log.String(), "check the clock of this machine: it says "+now().Format("2006-")); got != (transport == TransportWebSocket) {
					t.Errorf("it tells of the clock: %t; log %s", got, a.log)
				}
			})
		}
	}
}

// TestDiagnoseWrongClock: with a clock that is decades off no certificate can be
// verified, and doctor still learns what time it is.
func TestDiagnoseWrongClock(t *testing.T) {
	g := startGateway(t)
	c := g.config(map[string]string{"box": "http://127.0.0.1:1"})
	for off, want := range map[time.Duration]string{
		-decades: "this machine's clock is 60 years behind the gateway's: it says ", decades: "this machine's clock is 60 years ahead of the gateway's: it says ",
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(upgradeRequired))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		defer server.Close()
		token := g.token
		token.URL = server.URL
		c.TunnelToken = token.Encode()
		found := diagnose(t, c, nil, func(d *diagnosis) {
			d.now = func() time.Time { return time.Now().Add(off) }
			d.token = token
			d.client = server.Client()
			d.client.Transport.(*http.Transport).TLSClientConfig.Time = d.now
		})
		if f := found["clock"]; f.Result != ResultFailed || !strings.HasPrefix(f.Detail, want) || !strings.Contains(f.Fix, "timedatectl") {
			t.Errorf("%v: %+v", off, f)
		}
		if f := found["websocket"]; f.Result != ResultWarning || !strings.Contains(f.Detail, "the gateway takes tunnels") || !strings.Contains(f.Fix, "check the clock of this machine") {
			t.Errorf("%v: %+v", off, f)
		}
		if f := found["udp"]; f.Result != ResultOK {
			t.Errorf("%v: %+v", off, f)
		}
	}
}
