package serve

import (
	"context"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// Tunnels are the live tunnels of a [tunnel.Hub].
type Tunnels interface {
	Choose(connectors []string, to tunnel.Target, except []Tunnel) (Tunnel, bool)
	WaitAny(ctx context.Context, connectors []string, to tunnel.Target, d time.Duration) (Tunnel, error)
}

// Tunnel is a live tunnel, implemented by [tunnel.Session].
type Tunnel interface {
	Connector() string
	Resolve(name, upstream, model string) (string, string, error)
	RoundTrip(r *http.Request) (*http.Response, error)
}

// TunnelsOf returns the tunnels of a hub.
func TunnelsOf(hub *tunnel.Hub) Tunnels { return hubTunnels{hub} }

type hubTunnels struct{ hub *tunnel.Hub }

func (t hubTunnels) Choose(connectors []string, to tunnel.Target, except []Tunnel) (Tunnel, bool) {
	var sessions []*tunnel.Session
	for _, e := range except {
		sessions = append(sessions, e.(*tunnel.Session))
	}
	session, ok := t.hub.Choose(connectors, to, sessions)
	return session, ok
}

func (t hubTunnels) WaitAny(ctx context.Context, connectors []string, to tunnel.Target, d time.Duration) (Tunnel, error) {
	session, err := t.hub.WaitAny(ctx, connectors, to, d)
	return session, err
}
