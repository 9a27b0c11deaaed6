package gateway

import (
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// onChange carries a change of the store to the tunnels and the metrics.
func (g *Gateway) onChange(st *store.Store, c store.Change) {
	switch {
	case c.Kind == store.KindConnector:
		if hub, err := g.Listener.Hub(); err == nil {
			onConnector(st, hub, c)
		}
	case c.Kind == store.KindDeployment && c.Removed && g.DeploymentRemoved != nil:
		g.DeploymentRemoved(c.ID)
	}
}

// onConnector closes the tunnels of a connector that was removed, or those of the
// device that had its place before, and offers a new token if there is to be one.
// After a failure that is left to the next hello, or to the next rotation.
func onConnector(st *store.Store, hub *tunnel.Hub, change store.Change) {
	c, ok := st.Connector(change.ID)
	if change.Removed || !ok {
		hub.Disconnect(change.ID, link.CloseRemoved)
		return
	}
	hub.DisconnectOthers(tunnelConnector(c), link.CloseRemoved)
	if c.Rotation != nil && c.Rotation.Problem == "" {
		hub.Rotate(c.ID)
	}
}

// Changes calls f whenever something of an account may look different: a record,
// a tunnel or a request. f must return at once.
func (g *Gateway) Changes(account string, f func()) (stop func()) {
	var stops []func()
	of := func(changed string) {
		if changed == account {
			f()
		}
	}
	if s := g.Store.Opened(); s != nil {
		stops = append(stops, s.Store.Subscribe(func(c store.Change) { of(c.Account) }), s.Activity.Subscribe(of), s.Pairing.Subscribe(of))
	}
	if hub, err := g.Listener.Hub(); err == nil {
		stops = append(stops, hub.Subscribe(func(e tunnel.Event) { of(e.Account) }))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
