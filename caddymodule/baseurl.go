package caddymodule

import (
	"bufio"
	"io"
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
	return caddy.ModuleInfo{
		ID:  "http.handlers.model_base_url",
		New: func() caddy.Module { return new(BaseURL) },
	}
}

// Provision implements caddy.Provisioner.
func (b *BaseURL) Provision(ctx caddy.Context) error {
	b.access = newAccessLog(ctx)
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (b *BaseURL) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	watched := &watchedWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
	if err := next.ServeHTTP(watched, r); err != nil || watched.used {
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

// watchedWriter records whether a response has begun.
type watchedWriter struct {
	*caddyhttp.ResponseWriterWrapper
	used bool
}

// WriteHeader implements http.ResponseWriter. 101 ends HTTP on the connection;
// any other status below 200 precedes a response.
func (w *watchedWriter) WriteHeader(status int) {
	w.used = w.used || status >= http.StatusOK || status == http.StatusSwitchingProtocols
	w.ResponseWriterWrapper.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *watchedWriter) Write(p []byte) (int, error) {
	w.used = true
	return w.ResponseWriterWrapper.Write(p)
}

// ReadFrom implements io.ReaderFrom: io.Copy may begin a response with it.
func (w *watchedWriter) ReadFrom(r io.Reader) (int64, error) {
	w.used = true
	return w.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError is for http.ResponseController: it sends the header.
func (w *watchedWriter) FlushError() error {
	w.used = true
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack is for http.ResponseController: the connection is no longer ours.
func (w *watchedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.used = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
