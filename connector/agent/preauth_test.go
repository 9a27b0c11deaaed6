package agent

import (
	"context"
	"crypto/sha256"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestConnectorPreauthenticates: over both transports, the connector proves before its hello
// that it has its secret, after a rotation the new one.
func TestConnectorPreauthenticates(t *testing.T) {
	for _, transport := range []string{config.TransportQUIC, config.TransportWebSocket} {
		t.Run(transport, func(t *testing.T) {
			g := startRealGateway(t)
			var secret atomic.Value // that is valid
			secret.Store(g.token.Secret)
			matched := make(chan bool, 10)
			g.SetOptions(tunnel.Options{
				Authenticate: func(_ context.Context, id, _ string) (tunnel.Connector, error) {
					return tunnel.Connector{ID: id, Name: id, Account: "default"}, nil
				},
				Preauthenticate: func(id string, match func(secretHash []byte) bool) bool {
					hash := sha256.Sum256([]byte(secret.Load().(string)))
					ok := id == g.token.Connector && match(hash[:])
					matched <- ok
					return ok
				},
			})
			a := startReal(t, g, func(a *instance) {
				a.config.transport = transport
				a.Keep = func(string, string) error { return nil }
			})
			wait.Until(t, "it is online", func() bool { return g.transport() == transport })
			if !wait.For(t, matched, "a preauthentication") {
				t.Error("it is not valid")
			}
			renewed := g.token
			renewed.Secret = "n3w"
			if err := a.takeToken(a.config.credentials, link.Rotate{Number: 1, TunnelToken: renewed.Encode()}); err != nil {
				t.Fatal(err)
			}
			secret.Store(renewed.Secret)
			again := a.config.quic.Dial
			if transport == config.TransportWebSocket {
				again = a.config.web.Dial
			}
			conn, err := again(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(link.CloseNone, "")
			if !wait.For(t, matched, "another preauthentication") {
				t.Error("it is not valid after a rotation")
			}
		})
	}
}
