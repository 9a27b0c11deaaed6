// Package gateway holds the state of a running gateway: the store and its services
// ([Store]), and the tunnel listener ([Listener]). Both outlive the configurations
// that share them, so a reload drops neither tunnels nor running requests. Each
// configuration has a [Gateway].
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// Configuration holds the settings of one configuration.
type Configuration struct {
	Listen    string // UDP address of the tunnel listener
	MaxMemory int64  // in bytes, for requests and answers
	// SwapAfter is how long a server that loads one model at a time serves it while requests wait for another model.
	SwapAfter  time.Duration
	Endpoint   func() manage.Endpoint // how the gateway is reached
	Build      manage.Build
	Connectors *downloads.Folder // archives of connectors
	Webhooks   func() []manage.Webhook
	Console    bool // a site serves the console
	SignIn     store.SignInPolicy
	Program    string     // command that starts this program
	Ask        manage.Ask // sends requests of the console to models
	Logger     *slog.Logger

	// DeploymentRemoved is called after a deployment is removed.
	DeploymentRemoved func(name string)
	// KeyRemoved is called after a key is revoked or removed.
	KeyRemoved func(id string)
}

// The default and the bounds of Configuration.SwapAfter.
const (
	DefaultSwapAfter = 30 * time.Second
	MinSwapAfter     = time.Second
	MaxSwapAfter     = time.Hour
)

// Gateway connects one configuration to the store and the listener.
type Gateway struct {
	Configuration
	Store    *Store
	Listener *Listener

	unwatch       func()         // ends the subscription to the store's changes
	tunnelOptions tunnel.Options // set by Start
	mu            sync.Mutex
	service       *manage.Service // nil until first used
}

// Start opens the store and the listener, unless an earlier configuration has
// opened them, and activates this configuration. After an error it is not active.
func (g *Gateway) Start(ctx context.Context) error {
	s, err := g.Store.Get(g)
	if err != nil {
		return err
	}
	g.Store.configurations.Push(g)
	if err := g.Listener.start(ctx, g, s); err != nil {
		g.Store.configurations.Remove(g)
		return err
	}
	g.Store.applySettings(s)
	g.unwatch = s.Store.Subscribe(func(c store.Change) { g.onChange(s.Store, c) })
	if g.Console {
		g.Store.Later(ctx, func() { g.welcome(ctx, s) })
	}
	return nil
}

// Stop deactivates this configuration. Tunnels and running requests continue:
// requests may outlast it, and a newer configuration may share the listener.
func (g *Gateway) Stop() {
	if g.unwatch != nil {
		g.unwatch()
	}
	g.Listener.stop(g)
	g.Store.configurations.Remove(g)
	if s := g.Store.Opened(); s != nil {
		g.Store.applySettings(s)
	}
}

// Backend returns the backend that serves requests.
func (g *Gateway) Backend() (*serve.Backend, error) {
	s, err := g.Store.Get(g)
	if err != nil {
		return nil, err
	}
	return s.Backend, nil
}

// Route is [tunnel.Hub.Route] for requests.
func (g *Gateway) Route(connector string, target tunnel.Target) (tunnel.DeploymentRoute, bool) {
	hub, err := g.Listener.Hub()
	if err != nil {
		return tunnel.DeploymentRoute{}, false
	}
	return hub.Route(connector, target)
}

// Recheck is [tunnel.Hub.Recheck] for requests.
func (g *Gateway) Recheck(connector string, target tunnel.Target) {
	if hub, err := g.Listener.Hub(); err == nil {
		hub.Recheck(connector, target)
	}
}

// Manage returns the management operations. It fails before the first Start.
func (g *Gateway) Manage() (*manage.Service, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.service != nil {
		return g.service, nil
	}
	s, err := g.Store.Get(g)
	if err != nil {
		return nil, err
	}
	hub, err := g.Listener.Hub()
	if err != nil {
		return nil, err
	}
	o := manage.Options{
		Store: s.Store, Tunnels: managedTunnels{hub}, Endpoint: g.Endpoint,
		Pairing: s.Pairing, SignIn: s.SignIn, Activity: s.Activity, Limits: s.Limiter.Usage, Ask: g.Ask,
		Load: s.Turns.Load, Server: s.Turns.Server,
		Build: g.Build, Folder: g.Connectors, Logger: g.Logger, Observed: s.Observed,
		Webhooks: g.Webhooks,
	}
	if s.Cluster != nil {
		o.Cluster = s.Cluster
	}
	g.service = manage.New(o)
	return g.service, nil
}

// managedTunnels adapts a hub to manage.Tunnels.
type managedTunnels struct{ *tunnel.Hub }

// Tunnel implements manage.Tunnels.
func (t managedTunnels) Tunnel(connectorID string) (manage.Tunnel, bool) {
	return t.Hub.Session(connectorID)
}

// onChange applies a change of the store to the tunnels and the metrics.
func (g *Gateway) onChange(st *store.Store, c store.Change) {
	switch {
	case c.Kind == store.KindConnector:
		if hub, err := g.Listener.Hub(); err == nil {
			hub.Review(c.ID)
		}
	case c.Kind == store.KindIdentity:
		if err := g.Listener.applyIdentity(st); err != nil {
			g.Logger.Error("failed to change the identity of the tunnels", "error", err)
		}
	case c.Kind == store.KindDeployment && c.Removed && g.DeploymentRemoved != nil:
		g.DeploymentRemoved(c.ID)
	case c.Kind == store.KindKey && c.Removed && g.KeyRemoved != nil:
		g.KeyRemoved(c.ID)
	}
}

// Changes calls f whenever a record, a tunnel or a request of an account may have
// changed. f must return at once.
func (g *Gateway) Changes(account string, f func()) (stop func()) {
	var stops []func()
	notify := func(changed string) {
		if changed == account {
			f()
		}
	}
	if s := g.Store.Opened(); s != nil {
		stops = append(stops, s.Store.Subscribe(func(c store.Change) { notify(c.Account) }),
			s.Activity.Subscribe(notify), s.Pairing.Subscribe(notify))
	}
	if hub, err := g.Listener.Hub(); err == nil {
		stops = append(stops, hub.Subscribe(func(e tunnel.Event) { notify(e.Account) }))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// welcome prints how to sign in to a console without users, once per process. The
// link itself is printed only on a terminal: journals and container logs may be
// read by others.
func (g *Gateway) welcome(ctx context.Context, s *Services) {
	if s.Store.UserCount() > 0 || g.SignIn.LocalOff || g.Store.Welcomed.Swap(true) {
		return
	}
	if !g.Store.Terminal {
		fmt.Fprintf(g.Store.Messages,
			"The console has no users yet. `%s gateway setup-link` prints a link that creates the first.\n", g.Program)
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
