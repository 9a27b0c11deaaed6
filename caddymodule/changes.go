package caddymodule

import (
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// onChange carries a change of the store to what lives outside it.
func (a *App) onChange(c store.Change) {
	switch {
	case c.Kind == store.KindConnector:
		if hub, err := a.tunnel.val.get(); err == nil {
			a.onConnector(hub, c)
		}
	case c.Kind == store.KindDeployment && c.Removed:
		forgetDeployment(c.ID)
	}
}

// onConnector closes the tunnels of a connector that was removed, or those of the
// device that had its place before another was given it, and has one that is to
// have a new token be offered it. After a failure that is left to its next hello,
// or to whoever begins the rotation anew.
func (a *App) onConnector(hub *tunnel.Hub, change store.Change) {
	c, ok := a.Store().Connector(change.ID)
	if change.Removed || !ok {
		hub.Disconnect(change.ID, link.CloseRemoved)
		return
	}
	hub.DisconnectOthers(tunnelConnector(c), link.CloseRemoved)
	if c.Rotation != nil && c.Rotation.Problem == "" {
		hub.Rotate(c.ID)
	}
}
