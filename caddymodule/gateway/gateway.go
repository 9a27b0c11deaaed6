// Package gateway is what a running gateway owns: the store and what works on it
// ([Store]), and the listener of tunnels ([Listener]). Both outlive the
// configurations that share them, so that a reload drops neither a tunnel nor a
// running request. A [Gateway] is one configuration's view of the two.
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Configuration is what a gateway takes from one configuration.
type Configuration struct {
	Listen    string                 // UDP address of the tunnel listener
	MaxMemory int64                  // bytes of requests and answers
	Endpoint  func() manage.Endpoint // how the gateway is reached
	Build     manage.Build
	Console   bool   // a site has the console
	Program   string // how this program is started from a shell
	Logger    *slog.Logger

	// DeploymentRemoved is called for each deployment that is removed.
	DeploymentRemoved func(name string)
}

// Gateway is the gateway of one configuration.
type Gateway struct {
	Configuration
	Store    *Store
	Listener *Listener

	unwatch func() // ends the subscription to the store's changes
	mu      sync.Mutex
	service *manage.Service // nil until its first use
}

// Start opens the store and the listener, unless an earlier configuration has
// opened them, and puts this configuration in force. After an error it is not.
func (g *Gateway) Start(ctx context.Context) error {
	s, err := g.Store.Get()
	if err != nil {
		return err
	}
	g.Store.configurations.Push(g, g)
	if err := g.Listener.start(ctx, g, s); err != nil {
		g.Store.configurations.Remove(g)
		return err
	}
	g.Store.applyMemory(s)
	g.unwatch = s.Store.Subscribe(func(c store.Change) { g.onChange(s.Store, c) })
	g.welcome(ctx, s)
	return nil
}

// Stop ends this configuration's part. Tunnels and running requests stay:
// requests may outlast it, and a newer configuration may have the same listener.
func (g *Gateway) Stop() {
	if g.unwatch != nil {
		g.unwatch()
	}
	g.Listener.stop(g)
	g.Store.configurations.Remove(g)
	if s := g.Store.Opened(); s != nil {
		g.Store.applyMemory(s)
	}
}

// Backend returns what requests are served from.
func (g *Gateway) Backend() (*serve.Backend, error) {
	s, err := g.Store.Get()
	if err != nil {
		return nil, err
	}
	return s.Backend, nil
}

// Tunnels returns the live tunnels, false while there is no listener.
func (g *Gateway) Tunnels() (serve.Tunnels, bool) {
	hub, err := g.Listener.Hub()
	if err != nil {
		return nil, false
	}
	return serve.TunnelsOf(hub), true
}

// Manage returns the management operations. It fails before the first Start.
func (g *Gateway) Manage() (*manage.Service, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.service != nil {
		return g.service, nil
	}
	s, err := g.Store.Get()
	if err != nil {
		return nil, err
	}
	hub, err := g.Listener.Hub()
	if err != nil {
		return nil, err
	}
	g.service = manage.New(manage.Options{
		Store: s.Store, Tunnels: managedTunnels{hub}, Endpoint: g.Endpoint,
		Pairing: s.Pairing, SignIn: s.SignIn, Activity: s.Activity,
		Build: g.Build, Logger: g.Logger,
	})
	return g.service, nil
}

// managedTunnels is the hub as the management operations see it.
type managedTunnels struct{ *tunnel.Hub }

// Tunnel implements manage.Tunnels.
func (t managedTunnels) Tunnel(connectorID string) (manage.Tunnel, bool) {
	session, ok := t.Session(connectorID)
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

// welcome prints how to get into a console that has no user yet: once in a
// process, however often it is reloaded. The link goes to a terminal only: others
// read a journal, and the log of a container.
func (g *Gateway) welcome(ctx context.Context, s *Services) {
	if !g.Console || s.Store.UserCount() > 0 || g.Store.Welcomed.Swap(true) {
		return
	}
	if !g.Store.Terminal {
		fmt.Fprintf(g.Store.Messages, "The console has no users yet. `%s gateway setup-link` prints a link that creates the first.\n", g.Program)
		return
	}
	service, err := g.Manage()
	if err != nil {
		g.Logger.Warn("failed to create the setup link", "error", err)
		return
	}
	link, err := service.SetupLink(manage.WithCaller(ctx, manage.Caller{Name: "gateway start", Operator: true}))
	if err != nil {
		g.Logger.Warn("failed to create the setup link", "error", err)
		return
	}
	fmt.Fprintf(g.Store.Messages, `
The console has no users yet. Open this link within 15 minutes to become the first:

  %s

It works once; `+"`%s gateway setup-link`"+` prints another one.

`, link.URL, g.Program)
}
