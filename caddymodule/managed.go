package caddymodule

import (
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// managedTunnels is the hub as the management operations see it.
type managedTunnels struct{ *tunnel.Hub }

// Tunnel implements manage.Tunnels.
func (t managedTunnels) Tunnel(connectorID string) (manage.Tunnel, bool) {
	session, ok := t.Hub.Session(connectorID)
	return session, ok
}

// Choose implements manage.Tunnels.
func (t managedTunnels) Choose(connectorIDs []string, to tunnel.Target) (string, manage.Tunnel, bool) {
	session, ok := t.Hub.Choose(connectorIDs, to, nil)
	if !ok {
		return "", nil, false
	}
	return session.Connector(), session, true
}
