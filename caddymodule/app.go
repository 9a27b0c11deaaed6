package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/metrics"
	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/connector/version"
)

// App is the model gateway: the store of keys, connectors and deployments, and
// the UDP listener that connectors dial. The handlers share both.
type App struct {
	// The UDP address that connectors dial in to. Default: `:7443`.
	Listen string `json:"listen,omitempty"`

	// The host:port that connectors dial, as written into their tokens.
	// Default: the host of the one site with `model_gateway`, and the port of
	// `listen`.
	Public string `json:"public,omitempty"`

	// The store of keys, connectors and deployments. Default: bolt, in
	// `model_gateway/gateway.db` below Caddy's data directory.
	Storage *Storage `json:"storage,omitempty"`

	// The options of this gateway if it shares a store in etcd with others.
	Edge *Edge `json:"edge,omitempty"`

	// The maximum bytes of requests and answers held in memory at a time, at
	// least 33554432 (32 MiB). Default: a quarter of Go's memory limit, which
	// Caddy sets, or without a limit an eighth of the machine's or the cgroup's
	// memory.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// How long the requests for the loaded model of a server that loads one model at a
	// time are served while others wait for another model: 1s to 1h. Default: 30s.
	SwapAfter caddy.Duration `json:"swap_after,omitempty"`

	// With "on", metrics have the ids of keys as labels. Default: "off".
	KeyMetrics string `json:"key_metrics,omitempty"`

	// The folder of the connectors that the gateway hands out: archives as in a
	// release, such as `connector_0.9.0_linux_amd64.tar.gz`. Default: `connectors`
	// next to the program.
	Connectors string `json:"connectors,omitempty"`

	ctx          caddy.Context
	logger       *slog.Logger
	addresses    addresses
	store        *gateway.Store
	listener     *gateway.Listener
	releases     []func() error // of the store and the listener
	gateway      *gateway.Gateway
	server       *serve.Server // of the three handlers
	signIn       *SignIn       // nil without a console
	issuers      []*oidc.Issuer
	events       *caddyevents.App
	sitesChecked bool            // the sites have been checked
	life         context.Context // canceled when the configuration stops
	endLife      context.CancelFunc
}

// listeners are the tunnel listeners in use, by their UDP address.
var listeners = caddy.NewUsagePool()

// The values of key_metrics.
const keyMetricsOn, keyMetricsOff = "on", "off"

// CaddyModule returns the module's registration.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "model_gateway", New: func() caddy.Module { return new(App) }}
}

// parseGlobalOption reads the options of the app.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		return nil, d.Err("model_gateway is given twice in the global options; merge the two blocks")
	}
	app := new(App)
	if err := app.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "model_gateway", Value: caddyconfig.JSON(app, nil)}, nil
}

// UnmarshalCaddyfile reads
//
//	model_gateway {
//		listen  <address>       # UDP for connectors, default :7443
//		public  <host:port>     # the address that connectors dial
//		storage bolt [<path>]   # or etcd { … }, see Storage
//		edge { … }              # this gateway of a cluster, see Edge
//		max_memory <size>       # for requests and answers, default a quarter of the memory limit
//		swap_after <duration>   # of servers that load one model at a time, default 30s
//		key_metrics on|off      # ids of keys as labels of metrics, default off
//		connectors <folder>     # of the connectors to hand out
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return options.List{
		options.Once(options.Text("listen", &a.Listen)),
		options.Once(options.Text("public", &a.Public)),
		options.Once(options.Option{Name: "storage", Parse: func(d *caddyfile.Dispenser) error {
			a.Storage = new(Storage)
			return a.Storage.UnmarshalCaddyfile(d)
		}}),
		options.Once(options.Option{Name: "edge", Parse: func(d *caddyfile.Dispenser) error {
			a.Edge = new(Edge)
			return a.Edge.UnmarshalCaddyfile(d)
		}}),
		options.Once(options.Size("max_memory", &a.MaxMemory)),
		options.Once(options.Duration("swap_after", &a.SwapAfter)),
		options.Once(options.Word("key_metrics", &a.KeyMetrics, keyMetricsOn, keyMetricsOff)),
		options.Once(options.Text("connectors", &a.Connectors)),
	}.Unmarshal(d)
}

// Provision checks the configuration and takes references to the pooled store
// and listener. It opens neither, since `caddy validate` provisions too.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx = ctx
	a.logger = ctx.Slogger()
	a.life, a.endLife = context.WithCancel(context.Background())
	if err := a.provisionEvents(ctx); err != nil {
		return err
	}
	if err := a.addresses.parse(a.Listen, a.Public); err != nil {
		return err
	}
	// The sites are found at the first use: by then all of them are provisioned.
	a.addresses.sites = sync.OnceValue(func() sites { return findSites(a.ctx, a.addresses.public) })
	if err := a.provisionMemory(); err != nil {
		return err
	}
	a.SwapAfter = cmp.Or(a.SwapAfter, caddy.Duration(gateway.DefaultSwapAfter))
	if s := time.Duration(a.SwapAfter); s < gateway.MinSwapAfter || s > gateway.MaxSwapAfter {
		return errors.New("swap_after must be 1s to 1h")
	}
	a.KeyMetrics = cmp.Or(a.KeyMetrics, keyMetricsOff)
	if a.KeyMetrics != keyMetricsOn && a.KeyMetrics != keyMetricsOff {
		return fmt.Errorf("key_metrics: %q is neither %s nor %s", a.KeyMetrics, keyMetricsOn, keyMetricsOff)
	}
	config, err := a.Storage.config(a.Edge)
	if err != nil {
		return err
	}
	var release func() error
	if a.store, release, err = acquireStore(config, a.logger); err != nil {
		return err
	}
	a.releases = append(a.releases, release)
	a.listener, release, err = acquire(listeners, a.addresses.listen.String(),
		func() *gateway.Listener { return new(gateway.Listener) })
	if err != nil {
		return err
	}
	a.releases = append(a.releases, release)
	a.addresses.listener = a.listener
	connectors := downloads.NewFolder(cmp.Or(a.Connectors, defaultConnectors()))
	caddyVersion, _ := caddy.Version()
	a.gateway = &gateway.Gateway{Store: a.store, Listener: a.listener, Configuration: gateway.Configuration{
		Listen: a.addresses.listen.JoinHostPort(0), MaxMemory: a.MaxMemory, SwapAfter: time.Duration(a.SwapAfter),
		Endpoint: a.addresses.endpoint, Logger: a.logger,
		Build:      manage.Build{Version: version.Number(), Commit: version.Commit(), Caddy: caddyVersion},
		Connectors: connectors, Webhooks: a.webhooks,
		Program: os.Args[0], DeploymentRemoved: metrics.DropDeployment, KeyRemoved: metrics.DropKey,
	}}
	a.server = &serve.Server{
		Open: a.gateway.Backend, Route: a.gateway.Route,
		Recheck: a.gateway.Recheck, StatusOf: statusOf,
		ClientIP: clientAddr, Page: a.connectPage, Logger: a.logger,
		Observer: metrics.Observer{Keys: a.KeyMetrics == keyMetricsOn},
	}
	a.gateway.Ask = a.server.Ask
	return metrics.Register(ctx.GetMetricsRegistry(), a.gateway, a.KeyMetrics == keyMetricsOn)
}

// connectPage returns the address of the page for people with a key, "" without a console.
func (a *App) connectPage() string {
	if !a.gateway.Console {
		return ""
	}
	return cmp.Or(a.addresses.sites().console.page(), consolePath+"/") + "connect"
}

// provisionMemory sets and checks MaxMemory.
func (a *App) provisionMemory() error {
	if a.MaxMemory == 0 {
		a.MaxMemory = gateway.DefaultMaxMemory()
	}
	if a.MaxMemory < gateway.MinMaxMemory {
		return fmt.Errorf("max_memory %d is too small: the gateway needs at least %d bytes (32MiB)", a.MaxMemory,
			int64(gateway.MinMaxMemory))
	}
	if limit := gateway.AvailableMemory(); a.MaxMemory > limit {
		a.logger.Warn("max_memory is more than the memory available; using that", "max_memory", a.MaxMemory,
			"available", limit)
		a.MaxMemory = limit
	}
	return nil
}

// defaultConnectors returns the folder of connectors next to the program.
func defaultConnectors() string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(program); err == nil {
		program = resolved
	}
	return filepath.Join(filepath.Dir(program), "connectors")
}

// provisionEvents cancels life as soon as the configuration begins to stop. The
// http app may stop before this app and waits for running requests, so the streams
// of open console pages would delay it.
//
// Events are emitted only after all apps have started, since the events app must
// not be used earlier.
func (a *App) provisionEvents(ctx caddy.Context) error {
	app, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events app: %w", err)
	}
	a.events = app.(*caddyevents.App)
	return a.events.Subscribe(&caddyevents.Subscription{
		Events:   []string{"started", "stopping"},
		Handlers: []caddyevents.Handler{a},
	})
}

// Handle implements caddyevents.Handler.
func (a *App) Handle(_ context.Context, e caddy.Event) error {
	if e.Name() == "stopping" {
		a.stopEvents()
	} else if open := a.store.Opened(); open != nil {
		open.Events.Push(a)
	}
	return nil
}

// stopEvents stops emitting events and ends the streams of console pages.
func (a *App) stopEvents() {
	a.endLife()
	if a.store == nil {
		return
	}
	if open := a.store.Opened(); open != nil {
		open.Events.Remove(a)
	}
}

// Emit implements events.Emitter.
func (a *App) Emit(e events.Event) {
	if name := eventPrefix + e.Name; a.events.ShouldEmit(name) {
		a.events.Emit(withEmission(a.ctx, emission{e.Alert, a.addresses.sites().console.page()}), name, e.Data)
	}
}

// Start opens the store and the listener unless an earlier configuration has
// already opened them. An error rolls back the reload.
func (a *App) Start() error {
	for _, warning := range a.addresses.sites().warnings {
		a.logger.Warn(warning)
	}
	open, err := a.store.Get(a.gateway)
	if err != nil {
		return err
	}
	if err := a.startIssuers(open.Store); err != nil {
		return err
	}
	return a.gateway.Start(a.ctx)
}

// Stop stops accepting connectors for this configuration. Tunnels and running
// requests continue.
func (a *App) Stop() error {
	a.gateway.Stop()
	return nil
}

// Cleanup releases the pooled values. The last configuration closes the tunnels,
// then the store.
func (a *App) Cleanup() error {
	a.stopEvents() // a configuration that failed to start gets no event
	var errs []error
	for _, release := range slices.Backward(a.releases) {
		errs = append(errs, release())
	}
	a.releases = nil
	return errors.Join(errs...)
}

// statusOf returns the HTTP status in another handler's error, 0 if it has none.
func statusOf(err error) int {
	handler, _ := errors.AsType[caddyhttp.HandlerError](err)
	return handler.StatusCode
}

// appOf finds the app for one of its handlers. At the first of them, it checks the sites.
func appOf(ctx caddy.Context) (*App, error) {
	loaded, err := ctx.App("model_gateway")
	if err != nil {
		return nil, fmt.Errorf("loading the model_gateway app: %w", err)
	}
	app := loaded.(*App)
	if app.sitesChecked {
		return app, nil
	}
	app.sitesChecked = true
	hosts, err := checkOrder(ctx)
	if err != nil {
		return nil, err
	}
	warnOfSites(app.logger, hosts["model_route"], hosts["model_console"], app.Public)
	return app, nil
}

// runningApp finds the app of the running configuration.
func runningApp() (*App, error) {
	app, err := caddy.ActiveContext().AppIfConfigured("model_gateway")
	if err != nil {
		return nil, fmt.Errorf("finding the gateway: %w", err)
	}
	return app.(*App), nil
}

// Interface guards.
var (
	_ caddy.App           = (*App)(nil)
	_ caddy.Provisioner   = (*App)(nil)
	_ caddy.CleanerUpper  = (*App)(nil)
	_ caddyevents.Handler = (*App)(nil)
)
