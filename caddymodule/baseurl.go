package caddymodule

import (
	"bufio"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/serve"
)

// unversionedPaths are the paths of the API without /v1.
var unversionedPaths = caddyhttp.MatchPath{
	"/chat/completions", "/completions", "/embeddings", "/models", "/models/*",
	"/messages", "/messages/*", "/responses", "/responses/*",
}

// BaseURL helps clients whose base URL lacks /v1. If no later handler responds
// to the request, it responds with 404 in the dialect of the path and names the
// correct base URL.
type BaseURL struct {
	noOptions
	access accessLog
}

// CaddyModule returns the module's registration.
func (BaseURL) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.model_base_url", New: func() caddy.Module { return new(BaseURL) }}
}

// Provision implements caddy.Provisioner.
func (b *BaseURL) Provision(ctx caddy.Context) error {
	b.access = newAccessLog(ctx)
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (b *BaseURL) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	watched := &watchedWriter{ResponseRecorder: caddyhttp.NewResponseRecorder(w, nil, nil)}
	err := next.ServeHTTP(watched, r)
	if status := watched.Status(); err != nil || watched.hijacked || status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		return err
	}
	caddyhttp.SetVar(r.Context(), "unhandled", nil) // set at the end of the route, for the log
	ex := serve.NewExchange()
	w, end := b.access.begin(w, r, ex)
	defer end()
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	path := "/v1" + r.URL.Path
	serve.Fail(w, dialect.OfPath(path, r.Header), ex.RequestID, dialect.NoVersion(r.Method, r.URL.Path, scheme+"://"+r.Host+"/v1"))
	return nil
}

// watchedWriter records a flush as the begin of a response, as net/http does, and
// whether a handler has taken the connection.
type watchedWriter struct {
	caddyhttp.ResponseRecorder
	hijacked bool
}

// FlushError is for http.ResponseController.
func (w *watchedWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return http.NewResponseController(w.ResponseRecorder).Flush()
}

// Hijack is for http.ResponseController. Many handlers of WebSockets send no status.
func (w *watchedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseRecorder).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseRecorder }
