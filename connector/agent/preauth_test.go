package agent

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestConnectorPreauthenticates: over both transports, the connector proves before its hello
// that it has its secret.
func TestConnectorPreauthenticates(t *testing.T) {
	for _, transport := range []string{config.TransportQUIC, config.TransportWebSocket} {
		t.Run(transport, func(t *testing.T) {
			g := startRealGateway(t)
			matched := make(chan bool, 10)
			g.SetOptions(tunnel.Options{
				Authenticate: func(_ context.Context, id, _ string) (tunnel.Connector, error) {
					return tunnel.Connector{ID: id, Name: id, Account: "default"}, nil
				},
				Preauthenticate: func(id string, match func(secretHash []byte) bool) bool {
					hash := sha256.Sum256([]byte(g.token.Secret))
					ok := id == g.token.Connector && match(hash[:])
					matched <- ok
					return ok
				},
			})
			startReal(t, g, func(a *instance) { a.config.transport = transport })
			wait.Until(t, "it is online", func() bool { return g.transport() == transport })
			if !wait.For(t, matched, "a preauthentication") {
				t.Error("it is not valid")
			}
		})
	}
}
