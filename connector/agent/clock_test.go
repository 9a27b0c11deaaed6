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
	"github.com/postern-dev/postern/tests/rig/wait"
)

// decades is long enough to leave the validity of httptest's certificate, 1970 to 2084.
const decades = 60 * (365*24 + 6) * time.Hour

// TestWrongClock: a connector whose clock is decades off connects over HTTPS nevertheless. It
// reports that the clock may be why it cannot verify the certificate. Package link tests the
// tunnel itself, over both transports.
func TestWrongClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"behind": -decades, "ahead": decades} {
		t.Run(name, func(t *testing.T) {
			g := startRealGateway(t)
			secure := httptest.NewTLSServer(http.HandlerFunc(g.ServeWebSocket))
			defer secure.Close()
			secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			pool := x509.NewCertPool()
			pool.AddCert(secure.Certificate())
			g.token.URL = secure.URL
			now := func() time.Time { return time.Now().Add(off) }
			a := startReal(t, g, func(a *instance) {
				a.config.transport = config.TransportWebSocket
				a.config.web.Now, a.config.web.Roots = now, pool
			})
			wait.Until(t, "a tunnel", func() bool { return g.transport() == config.TransportWebSocket })
			g.mustAsk(t)
			if !strings.Contains(a.log.String(), "check the clock of this machine: it shows "+now().Format("2006-")) {
				t.Errorf("the log does not mention the clock: %s", a.log)
			}
		})
	}
}
