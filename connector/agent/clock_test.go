package agent

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/config"
)

// decades is enough to be out of the time of httptest's certificate, 1970 to 2084.
const decades = 60 * (365*24 + 6) * time.Hour

// TestWrongClock: a connector whose clock is decades off connects all the same,
// over both transports. Over HTTPS it reports that the clock may be why it cannot
// verify the certificate outside.
func TestWrongClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"behind": -decades, "ahead": decades} {
		for _, transport := range []string{config.TransportQUIC, config.TransportWebSocket} {
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
					a.current.transport = transport
					a.current.quic.TLS.Time, a.current.web.TLS.Time, a.current.web.Now, a.current.web.Roots = now, now, now, pool
				})
				eventually(t, "a tunnel", func() bool { return g.transport() == transport })
				g.mustAsk(t)
				if got := strings.Contains(a.log.String(), "check the clock of this machine: it shows "+now().Format("2006-")); got != (transport == config.TransportWebSocket) {
					t.Errorf("it mentions the clock: %t; log %s", got, a.log)
				}
			})
		}
	}
}
