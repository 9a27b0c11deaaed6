package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/console"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/serve"
)

// Console serves the web console and the management API for its users under
// /console, and redirects / to it unless a later handler of the site answers that. It
// identifies clients by Caddy's client IP: behind another proxy, add
// that proxy to the server's trusted_proxies.
type Console struct {
	SignIn
	app     *App
	access  accessLog
	mu      sync.Mutex
	handler *console.Console // nil before the first request
}

// CaddyModule returns the module's registration.
func (*Console) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.model_console", New: func() caddy.Module { return new(Console) }}
}

// Provision finds the app.
func (c *Console) Provision(ctx caddy.Context) error {
	c.access = newAccessLog(ctx)
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	c.app, app.gateway.Console = app, true
	return app.provisionSignIn(&c.SignIn)
}

// parseModelConsole reads the directive of the console:
//
//	model_console [<matcher>] { … }
//
// See SignIn for its options.
// It serves matching requests for /console and the paths below it, and for / unless
// a later handler answers them.
func parseModelConsole(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next()
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	console, err := parseHandler[Console](h)
	if err != nil {
		return nil, err
	}
	return routesWithin(matcher, pathRoute(h, caddyhttp.MatchPath{"/", consolePath, consolePath + "/*"}, console)), nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if caddyhttp.CleanPath(r.URL.Path, true) == "/" { // as the matcher of the directive reads it
		return c.redirect(w, r, next)
	}
	w, end := c.access.begin(w, r, serve.NewExchange())
	defer end()
	handler, err := c.get()
	if err != nil {
		text := "The gateway is starting. Try again in a moment."
		if !errors.Is(err, gateway.ErrNotListening) {
			c.app.logger.Error("failed to start the console", "error", err)
			text = "The console could not be started. See the gateway's log for the reason."
		}
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, text, http.StatusServiceUnavailable)
		return nil
	}
	r, done := c.untilEnd(r)
	defer done()
	fail := failText
	if strings.HasPrefix(r.URL.Path, consolePath+"/api/") {
		fail = failJSON
	}
	return recovered(c.app.logger, w, func(w http.ResponseWriter) error { handler.ServeHTTP(w, r); return nil }, fail)
}

// redirect redirects to the console, unless a later handler answers the request.
func (c *Console) redirect(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return next.ServeHTTP(w, r)
	}
	unanswered, err := passOn(w, r, next)
	if err == nil && unanswered {
		w, end := c.access.begin(w, r, serve.NewExchange())
		defer end()
		http.Redirect(w, r, consolePath+"/", http.StatusFound)
	}
	return err
}

// untilEnd returns r. An event stream never ends by itself, so the end of the configuration
// cancels its request. The page then reconnects to the next configuration. done must be called
// after the request is served.
func (c *Console) untilEnd(r *http.Request) (_ *http.Request, done func()) {
	if !strings.HasPrefix(r.URL.Path, consolePath+"/events/") {
		return r, func() {}
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(c.app.life, cancel)
	return r.WithContext(ctx), func() {
		stop()
		cancel()
	}
}

// get returns the console, creating it at the first request after the app's
// Start. Failures are not cached.
func (c *Console) get() (*console.Console, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handler != nil {
		return c.handler, nil
	}
	service, err := c.app.gateway.Manage()
	if err != nil {
		return nil, err
	}
	open, err := c.app.store.Get(c.app.gateway)
	if err != nil {
		return nil, err
	}
	c.handler = console.New(console.Options{
		Manage: service, SignIn: open.SignIn, ClientIP: clientIP, Changes: c.app.gateway.Changes,
		Logger: c.app.logger, Now: time.Now, Issuers: c.app.issuers,
	})
	return c.handler, nil
}
