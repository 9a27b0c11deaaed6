// Package gateway is what a running gateway owns: the store and what works on it
// ([Store]), and the listener of tunnels ([Listener]). Both outlive the
// configurations that share them, so that a reload drops neither a tunnel nor a
// running request. A [Gateway] is one configuration's view of the two.
package gateway

import (
	"context"
	"log/slog"
	"sync"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
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
