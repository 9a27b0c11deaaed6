package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/connector/version"
)

// App is the model gateway: the store of keys, connectors and deployments, and
// the UDP listener that connectors dial. Its handlers share both.
type App struct {
	// The UDP address that connectors dial in to. Default: `:7443`.
	Listen string `json:"listen,omitempty"`

	// The host:port that connectors dial, as written into their tokens.
	// Default: the host of the one site with `model_gateway`, and the port of
	// `listen`.
	Public string `json:"public,omitempty"`

	// Where keys, connectors and deployments are kept. Default: bolt, in
	// `model_gateway/gateway.db` below Caddy's data directory.
	Storage *Storage `json:"storage,omitempty"`

	// This gateway among those that share a store in etcd.
	Edge *Edge `json:"edge,omitempty"`

	// The maximum bytes of requests and answers held in memory at a time, at
	// least 33554432 (32 MiB). Default: a quarter of Go's memory limit, which
	// Caddy sets, or without a limit an eighth of the machine's or the cgroup's
	// memory.
	MaxMemory int64 `json:"max_memory,omitempty"`

	// Whether metrics have the ids of keys as labels: "on" or "off". Default: "off".
	KeyMetrics string `json:"key_metrics,omitempty"`

	// The folder of the connectors that the gateway hands out: archives as in a
	// release, such as `connector_0.9.0_linux_amd64.tar.gz`. Default: `connectors`
	// next to the program.
	Connectors string `json:"connectors,omitempty"`

	ctx      caddy.Context
	logger   *slog.Logger
	listen   caddy.NetworkAddress
	store    *gateway.Store
	listener *gateway.Listener
	releases []func() error // of the store and the listener
	gateway  *gateway.Gateway
	server   *serve.Server // of the three handlers
	events   *caddyevents.App
	sites    func() (api, console site) // found at the first use: by then all sites are provisioned
	warnings func() []string            // as sites
	trust    trust
	ordered  bool            // the handler order has been checked; set while provisioning
	life     context.Context // canceled when the configuration stops
	end      context.CancelFunc
}

// The values of key_metrics.
const on, off = "on", "off"

// defaultPort is the UDP port that connectors dial by default.
const defaultPort = 7443

// CaddyModule returns the module's registration.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "model_gateway", New: func() caddy.Module { return new(App) }}
}

// Provision checks the configuration and takes references to the pooled store
// and listener. It opens neither, since `caddy validate` provisions too.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx = ctx
	a.logger = ctx.Slogger()
	a.warnings = sync.OnceValue(a.findWarnings)
	a.sites = sync.OnceValues(func() (api, console site) { return a.site("model_route"), a.site("model_console") })
	a.life, a.end = context.WithCancel(context.Background())
	if err := a.provisionEvents(ctx); err != nil {
		return err
	}
	if err := a.provisionAddresses(); err != nil {
		return err
	}
	if a.MaxMemory == 0 {
		a.MaxMemory = gateway.DefaultMaxMemory()
	}
	if a.MaxMemory < gateway.MinMaxMemory {
		return fmt.Errorf("max_memory %d is too small: the gateway needs at least %d bytes (32MiB)", a.MaxMemory,
			int64(gateway.MinMaxMemory))
	}
	if a.KeyMetrics = cmp.Or(a.KeyMetrics, off); a.KeyMetrics != on && a.KeyMetrics != off {
		return fmt.Errorf("key_metrics: %q is neither %s nor %s", a.KeyMetrics, on, off)
	}
	if most := gateway.MostMemory(); a.MaxMemory > most {
		a.logger.Warn("max_memory is more than the memory available; using that", "max_memory", a.MaxMemory,
			"available", most)
		a.MaxMemory = most
	}
	place, err := a.place()
	if err != nil {
		return err
	}
	var release func() error
	if a.store, release, err = acquireStore(place, a.logger); err != nil {
		return err
	}
	a.releases = append(a.releases, release)
	a.listener, release, err = acquire(listeners, a.listen.String(),
		func() *gateway.Listener { return new(gateway.Listener) })
	if err != nil {
		return err
	}
	a.releases = append(a.releases, release)
	caddyVersion, _ := caddy.Version()
	a.gateway = &gateway.Gateway{Store: a.store, Listener: a.listener, Configuration: gateway.Configuration{
		Listen: a.listen.JoinHostPort(0), MaxMemory: a.MaxMemory, Endpoint: a.endpoint, Logger: a.logger,
		Build:      manage.Build{Version: version.Number(), Commit: version.Commit(), Caddy: caddyVersion},
		Connectors: downloads.NewFolder(cmp.Or(a.Connectors, defaultConnectors())),
		Offer:      a.offer,
		Program:    os.Args[0], DeploymentRemoved: dropSeries, KeyRemoved: dropKeySeries, Grace: a.grace,
	}}
	a.server = &serve.Server{
		Open: a.gateway.Backend, Choose: a.gateway.ChooseTunnel, Reserve: a.gateway.ReserveTunnel, StatusOf: statusOf,
		ClientIP: clientAddr, Observer: metrics{a.KeyMetrics == on}, Logger: a.logger,
	}
	return registerMetrics(ctx.GetMetricsRegistry(), a.gateway, a.KeyMetrics == on)
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

// These pools hold values that outlive a configuration. Keys are identities (a
// path, an address), never tunables: configurations that differ in a tunable
// still share the open file and the socket.
var (
	stores    = caddy.NewUsagePool() // by absolute path of the database
	listeners = caddy.NewUsagePool() // by UDP listen address
)

// acquire takes a reference to the value under key, creating it with mk if it is
// not in the pool. The last release destructs the value.
func acquire[T caddy.Destructor](pool *caddy.UsagePool, key string,
	mk func() T) (value T, release func() error, err error) {
	v, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return mk(), nil })
	if err != nil {
		return value, nil, err
	}
	return v.(T), func() error { _, err := pool.Delete(key); return err }, nil
}

// acquireStore takes a reference to the store at a place. It fails if the store is in use with
// other options.
func acquireStore(place gateway.Place, logger *slog.Logger) (store *gateway.Store, release func() error, err error) {
	store, release, err = acquire(stores, place.Path, func() *gateway.Store {
		return gateway.NewStore(place, logger,
			gateway.Counters{SignInFailed: countFailedSignIn, EventsLost: countLostEvents, Waited: observeBarrier})
	})
	if err == nil && store.Options() != place.Options {
		return nil, nil, errors.Join(errOtherOptions, release())
	}
	return store, release, err
}

var errOtherOptions = errors.New("`storage etcd` or `edge` has other options than the running gateway: a reload " +
	"cannot change them, so restart the gateway")

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
	return a.events.Subscribe(&caddyevents.Subscription{Events: []string{"started", "stopping"},
		Handlers: []caddyevents.Handler{a}})
}

// Handle implements caddyevents.Handler.
func (a *App) Handle(_ context.Context, e caddy.Event) error {
	if e.Name() == "stopping" {
		a.gateway.Stopping()
		a.stopEvents()
	} else if open := a.store.Opened(); open != nil {
		open.Events.Push(a)
	}
	return nil
}

// stopEvents stops emitting events and ends the streams of console pages.
func (a *App) stopEvents() {
	a.end()
	if a.store == nil {
		return
	}
	if open := a.store.Opened(); open != nil {
		open.Events.Remove(a)
	}
}

// Emit implements events.Emitter.
func (a *App) Emit(e events.Event) {
	if name := "model_gateway." + e.Name; a.events.ShouldEmit(name) {
		a.events.Emit(a.ctx, name, e.Data)
	}
}

// provisionAddresses parses the two addresses.
func (a *App) provisionAddresses() error {
	listen := cmp.Or(a.Listen, ":"+strconv.Itoa(defaultPort))
	na, err := caddy.ParseNetworkAddressWithDefaults(listen, "udp", defaultPort)
	if err != nil {
		return fmt.Errorf("parsing listen %q: %w", listen, err)
	}
	if na.Network != "udp" || na.PortRangeSize() != 1 {
		return fmt.Errorf("parsing listen %q: connectors dial one UDP port, such as :7443", listen)
	}
	if isNumber(na.Host) { // a port without its colon
		return fmt.Errorf("parsing listen %q: for this port, write :%s", listen, na.Host)
	}
	a.listen = na
	if a.Public == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(a.Public)
	if err != nil {
		host, port = a.Public, strconv.Itoa(int(na.StartPort))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || isNumber(host) {
		return fmt.Errorf("parsing public %q: it must be the host:port that connectors dial, such as gw.example.com:7443",
			a.Public)
	}
	a.Public = net.JoinHostPort(host, port)
	return nil
}

// isNumber reports whether a host is a decimal number.
func isNumber(host string) bool {
	_, err := strconv.ParseUint(host, 10, 64)
	return err == nil
}

// Start opens the store and the listener unless an earlier configuration has
// already opened them. An error rolls back the reload.
func (a *App) Start() error {
	for _, warning := range a.warnings() {
		a.logger.Warn(warning)
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
	a.stopEvents() // in case it failed right after it started
	var errs []error
	for _, release := range slices.Backward(a.releases) {
		errs = append(errs, release())
	}
	a.releases = nil
	return errors.Join(errs...)
}

// grace returns how long requests may run after Caddy's servers begin to stop, 0 if there is no
// grace period.
func (a *App) grace() time.Duration {
	loaded, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return 0
	}
	app := loaded.(*caddyhttp.App)
	if app.GracePeriod == 0 {
		return 0
	}
	return time.Duration(app.ShutdownDelay + app.GracePeriod)
}

// statusOf returns the HTTP status in another handler's error, 0 if it has none.
func statusOf(err error) int {
	handler, _ := errors.AsType[caddyhttp.HandlerError](err)
	return handler.StatusCode
}

// appOf finds the app for one of its handlers and checks the order of the handlers.
func appOf(ctx caddy.Context) (*App, error) {
	loaded, err := ctx.App("model_gateway")
	if err != nil {
		return nil, fmt.Errorf("loading the model_gateway app: %w", err)
	}
	app := loaded.(*App)
	return app, app.checkOrder(ctx)
}

// Interface guards.
var (
	_ caddy.App           = (*App)(nil)
	_ caddy.Provisioner   = (*App)(nil)
	_ caddy.CleanerUpper  = (*App)(nil)
	_ caddyevents.Handler = (*App)(nil)
)
