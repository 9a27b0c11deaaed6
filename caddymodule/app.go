package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/version"
)

func init() {
	caddy.RegisterModule(new(App))
}

// App is the model gateway: the store of keys, connectors and deployments, and
// the UDP listener that connectors dial. Its handlers find both here.
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

	// How many bytes of requests and answers the gateway may hold in memory at
	// a time, at least 33554432 (32 MiB). Go's soft memory limit follows from
	// it, unless the environment has GOMEMLIMIT. Default: a quarter of the
	// machine's or the cgroup's memory.
	MaxMemory int64 `json:"max_memory,omitempty"`

	ctx     caddy.Context
	logger  *slog.Logger
	listen  caddy.NetworkAddress
	store   ref[*storeHandle]
	tunnel  ref[*tunnelHandle]
	events  *caddyevents.App
	unwatch func()          // ends the subscription to the store's changes
	console bool            // a site has the console; set while provisioning
	life    context.Context // ends when the configuration does
	end     context.CancelFunc

	mu      sync.Mutex
	service *manage.Service // nil until its first use
}

// Storage is where the gateway keeps its records.
type Storage struct {
	// The kind of storage. Only `bolt`, an embedded database file.
	Kind string `json:"kind,omitempty"`

	// The file. Default: `model_gateway/gateway.db` below Caddy's data
	// directory.
	Path string `json:"path,omitempty"`
}

// minMaxMemory is the least that max_memory may be, in bytes.
const minMaxMemory = 32 << 20

// defaultMaxMemory is max_memory unless it is configured, in bytes.
func defaultMaxMemory() int64 { return max(memory.Available()/4, minMaxMemory) }

// defaultPort is the UDP port that connectors dial unless told otherwise.
const defaultPort = 7443

// CaddyModule returns the module's registration.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "model_gateway",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision checks the configuration and takes its share of the pooled store
// and listener. It opens neither: `caddy validate` provisions too.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx = ctx
	a.logger = ctx.Slogger()
	a.life, a.end = context.WithCancel(context.Background())
	if err := a.provisionEvents(ctx); err != nil {
		return err
	}
	if err := a.provisionAddresses(); err != nil {
		return err
	}
	if a.MaxMemory == 0 {
		a.MaxMemory = defaultMaxMemory()
	}
	if a.MaxMemory < minMaxMemory {
		return fmt.Errorf("max_memory %d is too small: the gateway needs at least %d bytes (32MiB)", a.MaxMemory, int64(minMaxMemory))
	}
	path, err := a.storagePath()
	if err != nil {
		return err
	}
	a.store, err = acquire(stores, path, func() *storeHandle {
		return newStoreHandle(path, a.logger)
	})
	if err != nil {
		return err
	}
	a.tunnel, err = acquire(tunnels, a.listen.String(), newTunnelHandle)
	if err != nil {
		return err
	}
	return registerMetrics(ctx.GetMetricsRegistry(), a.sessions, a.queues, a.budget, a.Manage)
}

// provisionEvents has life end at the first sign of the configuration's end. The
// http app waits for the requests that run when it stops, and may be told to
// stop before this app is: the streams of open console pages would never end.
//
// Events are emitted from the moment when all apps have started, the events app
// too, which nobody may use earlier.
func (a *App) provisionEvents(ctx caddy.Context) error {
	app, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the events app: %w", err)
	}
	a.events = app.(*caddyevents.App)
	if err := a.events.On("started", onEvent{a.beginEvents}); err != nil {
		return err
	}
	return a.events.On("stopping", onEvent{func() {
		a.end()
		a.endEvents()
	}})
}

// onEvent does something when the configuration has started, or is about to stop.
// It is a struct since Caddy logs it as JSON, which knows no functions.
type onEvent struct{ do func() }

// Handle implements caddyevents.Handler.
func (f onEvent) Handle(context.Context, caddy.Event) error {
	f.do()
	return nil
}

// beginEvents makes this configuration the one that emits events.
func (a *App) beginEvents() {
	if open := a.store.val.open.Load(); open != nil {
		open.events.Push(a)
	}
}

// endEvents ends that.
func (a *App) endEvents() {
	if a.store.val == nil {
		return
	}
	if open := a.store.val.open.Load(); open != nil {
		open.events.Remove(a)
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
	listen := a.Listen
	if listen == "" {
		listen = ":" + strconv.Itoa(defaultPort)
	}
	na, err := caddy.ParseNetworkAddressWithDefaults(listen, "udp", defaultPort)
	if err != nil {
		return fmt.Errorf("parsing listen %q: %w", listen, err)
	}
	if na.Network != "udp" || na.PortRangeSize() != 1 {
		return fmt.Errorf("parsing listen %q: connectors dial one UDP port, such as :7443", listen)
	}
	a.listen = na
	if a.Public == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(a.Public)
	if err != nil {
		host, port = a.Public, strconv.Itoa(int(na.StartPort))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("parsing public %q: it must be the host:port that connectors dial, such as gw.example.com:7443", a.Public)
	}
	a.Public = net.JoinHostPort(host, port)
	return nil
}

// storagePath returns the absolute path of the database file.
func (a *App) storagePath() (string, error) {
	path := filepath.Join(caddy.AppDataDir(), "model_gateway", "gateway.db")
	if a.Storage != nil {
		if a.Storage.Kind != "" && a.Storage.Kind != "bolt" {
			return "", fmt.Errorf("storage %q is unknown; expected bolt", a.Storage.Kind)
		}
		if a.Storage.Path != "" {
			path = a.Storage.Path
		}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding the storage path %q: %w", path, err)
	}
	return abs, nil
}

// Start opens the store and the listener, unless a former configuration has
// them open already. An error rolls the reload back.
func (a *App) Start() error {
	open, err := a.store.val.get()
	if err != nil {
		return err
	}
	a.store.val.force.enter(a)
	if err := a.tunnel.val.start(a, open); err != nil {
		a.store.val.force.leave(a)
		return err
	}
	a.store.val.force.bound(open)
	a.unwatch = open.store.Subscribe(a.onChange)
	a.welcome(open)
	return nil
}

// Stop stops taking connectors on behalf of this configuration. Tunnels and
// requests that run stay: requests may outlast Stop, and a newer configuration
// may hold the same listener.
func (a *App) Stop() error {
	if a.unwatch != nil {
		a.unwatch()
	}
	a.tunnel.val.stop(a)
	a.store.val.force.leave(a)
	if open := a.store.val.open.Load(); open != nil {
		a.store.val.force.bound(open)
	}
	return nil
}

// Cleanup gives the pooled values back; the last configuration's turn closes
// tunnels first and the store after them.
func (a *App) Cleanup() error {
	if a.end != nil {
		a.end()
	}
	a.endEvents() // if it failed right after it had started
	err := a.tunnel.release()
	if e := a.store.release(); err == nil {
		err = e
	}
	return err
}

// budget is the memory budget of the open store's gateway, for metrics; nil while
// it is not open.
func (a *App) budget() *memory.Budget {
	if open := a.store.val.open.Load(); open != nil {
		return open.memory
	}
	return nil
}

// openStore returns the store, opening it if this is its first use: the http
// app may be started, and serve a request, before this app.
func (a *App) openStore() (*store.Store, error) {
	open, err := a.store.val.get()
	if err != nil {
		return nil, err
	}
	return open.store, nil
}

// Store returns the store of the running gateway, nil before Start.
func (a *App) Store() *store.Store {
	if open := a.store.val.open.Load(); open != nil {
		return open.store
	}
	return nil
}

// Hub returns the live tunnels of the running gateway, nil before Start.
func (a *App) Hub() *tunnel.Hub { return a.tunnel.val.hub.Load() }

// Manage returns the management operations over the running gateway.
func (a *App) Manage() (*manage.Service, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.service != nil {
		return a.service, nil
	}
	open, err := a.store.val.get()
	if err != nil {
		return nil, err
	}
	hub, err := a.tunnel.val.get()
	if err != nil {
		return nil, err
	}
	caddyVersion, _ := caddy.Version()
	a.service = manage.New(manage.Options{
		Store: open.store, Tunnels: managedTunnels{hub}, Endpoint: a.endpoint,
		Pairing: open.desk, SignIn: open.signIn, Activity: open.activity,
		Build:  manage.Build{Version: version.Number(), Commit: version.Commit(), Caddy: caddyVersion},
		Logger: a.logger,
	})
	return a.service, nil
}

// sessions lists the live tunnels, for metrics.
func (a *App) sessions() []tunnel.Info {
	if hub, err := a.tunnel.val.get(); err == nil {
		return hub.Sessions()
	}
	return nil
}

// queues are those of the open store, for metrics; nil while it is not open.
func (a *App) queues() *queue.Queues {
	if open := a.store.val.open.Load(); open != nil {
		return open.queues
	}
	return nil
}

// internal logs what went wrong inside the gateway and returns what the client
// is told of it.
func (a *App) internal(doing string, err error) *dialect.Error {
	a.logger.Error(doing, "error", err)
	return dialect.Internal("The gateway failed at " + doing + "; its log has the reason.")
}

// foreign is what the client is told of the error of a handler that is not
// ours: Caddy's own error handling knows no dialect.
func (a *App) foreign(err error) *dialect.Error {
	var handler caddyhttp.HandlerError
	if errors.As(err, &handler) && handler.StatusCode != 0 && handler.StatusCode != http.StatusInternalServerError {
		return dialect.FromHandler(handler.StatusCode)
	}
	return a.internal("passing a request from handler to handler", err)
}

// provisionApp finds the app for one of its handlers.
func provisionApp(ctx caddy.Context, to **App) error {
	app, err := ctx.App("model_gateway")
	if err != nil {
		return fmt.Errorf("loading the model_gateway app: %w", err)
	}
	*to = app.(*App)
	return nil
}

// Interface guards.
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
