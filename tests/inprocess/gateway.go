// Package inprocess runs a gateway and its connectors in the process of a test: the
// real request path, management API, store and tunnels, without Caddy. It starts in
// milliseconds, and the race detector sees all of it.
package inprocess

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/tests/asktest"
)

// Options are the site's options that tests set.
type Options struct {
	Translator serve.Translator // without its Server
	Router     serve.Router     // without its Server
}

// A Gateway serves the public API and the management API.
type Gateway struct {
	URL   string // http://127.0.0.1:port of the public API
	Admin string // host:port of the management API

	gateway *gateway.Gateway
	servers []*http.Server
}

// Start starts a gateway with its store in a folder. It logs to logger.
func Start(dir string, o Options, logger *slog.Logger) (*Gateway, error) {
	g := new(Gateway)
	g.gateway = &gateway.Gateway{
		Store: gateway.NewStore(gateway.StoreConfig{Path: filepath.Join(dir, "gateway.db")}, logger,
			gateway.Counters{SignInFailed: func(string) {}, EventsLost: func(string, int) {}}),
		Listener: new(gateway.Listener),
		Configuration: gateway.Configuration{
			Listen: "127.0.0.1:0", MaxMemory: 1 << 30, Endpoint: g.endpoint, Logger: logger,
			DeploymentRemoved: func(string) {},
		},
	}
	server := &serve.Server{
		Open: g.gateway.Backend, Route: g.gateway.Route,
		Recheck:  g.gateway.Recheck,
		StatusOf: func(error) int { return 0 }, Observer: asktest.Silent{}, Logger: logger,
		ClientIP: func(r *http.Request) netip.Addr { return netip.MustParseAddrPort(r.RemoteAddr).Addr() },
	}
	g.gateway.Ask = server.Ask
	if err := g.gateway.Start(context.Background()); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	api, err := g.listen(handler(o, server))
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	g.URL = "http://" + api
	if g.Admin, err = g.listen(http.HandlerFunc(g.manage)); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// handler returns the three handlers in their order.
func handler(o Options, server *serve.Server) http.Handler {
	translator, router := o.Translator, o.Router
	translator.Server, router.Server = server, server
	translator.MaxBody = cmp.Or(translator.MaxBody, serve.DefaultMaxBody)
	translator.KeepAlive = cmp.Or(translator.KeepAlive, serve.DefaultKeepAlive)
	translator.ResponseStore = cmp.Or(translator.ResponseStore, serve.StoreOn)
	router.ConnectWait = cmp.Or(router.ConnectWait, serve.DefaultConnectWait)
	route := handlerFunc(func(_ http.ResponseWriter, r *http.Request) error { return router.Serve(r) })
	translate := handlerFunc(func(w http.ResponseWriter, r *http.Request) error { return translator.Serve(w, r, route) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve.Authenticator{Server: server}.Serve(w, r, serve.NewExchange(), translate)
	})
}

// handlerFunc is a function that is a handler, as those of Caddy.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

func (f handlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) error { return f(w, r) }

// manage serves the management API as Caddy's admin endpoint does.
func (g *Gateway) manage(w http.ResponseWriter, r *http.Request) {
	service, err := g.gateway.Manage()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	r = r.WithContext(manage.WithCaller(r.Context(), manage.Caller{Name: "admin endpoint", Operator: true}))
	service.Handler(manage.AdminPrefix).ServeHTTP(w, r)
}

// endpoint returns the addresses of the gateway.
func (g *Gateway) endpoint() manage.Endpoint {
	e := manage.Endpoint{URL: g.URL}
	if hub, err := g.gateway.Listener.Hub(); err == nil {
		e.Pin, e.Listen, e.Public = hub.Pin(), hub.Addr().String(), hub.Addr().String()
	}
	return e
}

// listen serves a handler on a loopback address, which it returns.
func (g *Gateway) listen(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	g.servers = append(g.servers, s)
	go func() { _ = s.Serve(l) }() // until Close
	return l.Addr().String(), nil
}

// Connect runs a connector with a configuration, until stop is called.
func (g *Gateway) Connect(configuration []byte, logger *slog.Logger) (stop func() error, err error) {
	parsed, err := config.Parse(configuration)
	if err != nil {
		return nil, err
	}
	a, err := agent.New(parsed, agent.Options{Logger: logger, DrainTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

// Close ends everything but connectors, which end before.
func (g *Gateway) Close() error {
	for _, s := range g.servers {
		_ = s.Close() // of listeners and connections only
	}
	g.gateway.Stop()
	return errors.Join(g.gateway.Listener.Destruct(), g.gateway.Store.Destruct())
}
