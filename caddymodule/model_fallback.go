package caddymodule

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/serve"
)

// Fallback answers requests that no later handler of the site answers: the health
// checks /healthz and /readyz, and everything else with 404. The 404 names the base
// URL of the API, since most such clients have a wrong one. It has the dialect of the
// path, or is a line of text for browsers.
type Fallback struct {
	// The origins whose web pages may read the answers, as in `cors` of model_auth.
	// Default: none.
	CORS []string `json:"cors,omitempty"`

	app    *App
	access accessLog
	cors   serve.CORS
}

// CaddyModule returns the module's registration.
func (*Fallback) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.model_fallback", New: func() caddy.Module { return new(Fallback) }}
}

// Provision finds the app.
func (f *Fallback) Provision(ctx caddy.Context) (err error) {
	f.access = newAccessLog(ctx)
	if f.cors, err = serve.NewCORS(f.CORS); err != nil {
		return err
	}
	if f.app, err = appOf(ctx); err == nil {
		f.access.hidden = serve.Authenticator{Server: f.app.server}.PersonHeader
	}
	return err
}

// UnmarshalCaddyfile reads
//
//	model_fallback {
//		cors <origin…>
//	}
func (f *Fallback) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return options.List{options.Texts("cors", &f.CORS)}.Unmarshal(d)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (f *Fallback) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if unanswered, err := passOn(w, r, next); err != nil || !unanswered {
		return err
	}
	ex := serve.NewExchange()
	w, end := f.access.begin(w, r, ex)
	defer end()
	switch r.URL.Path {
	case "/healthz":
		answerText(w, http.StatusOK, "ok")
		return nil
	case "/readyz":
		f.app.answerReady(w, r)
		return nil
	}
	if f.cors.Serve(w, r) {
		return nil
	}
	base := baseURL(r)
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		answerText(w, http.StatusNotFound, "Not found. This is a model gateway. Its API is at "+base+".")
		return nil
	}
	serve.Fail(w, dialect.OfPath("/v1"+r.URL.Path, r.Header), ex.RequestID, dialect.NoVersion(r.Method, r.URL.Path, base))
	return nil
}

// unhandled is the variable of a request that Caddy sets at the end of the routes,
// where it answers with an empty 200.
const unhandled = "unhandled"

// passOn passes a request to the next handlers. It reports whether none of them has
// answered; the caller must then answer. It does not wrap w, so that other handlers can
// flush and hijack as usual.
func passOn(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (unanswered bool, err error) {
	err = next.ServeHTTP(w, r)
	unanswered, _ = caddyhttp.GetVar(r.Context(), unhandled).(bool)
	if err == nil && unanswered {
		caddyhttp.SetVar(r.Context(), unhandled, nil)
	}
	return unanswered, err
}

// baseURL returns the base URL of the API as the client reaches it. A trusted proxy
// reports whether the client uses TLS, as in Caddy's reverse_proxy.
func baseURL(r *http.Request) string {
	scheme := "http"
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	forwarded := append([]string{""}, r.Header.Values("X-Forwarded-Proto")...)
	if r.TLS != nil || trusted && forwarded[len(forwarded)-1] == "https" {
		scheme = "https"
	}
	return scheme + "://" + cmp.Or(r.Host, "localhost") + "/v1"
}
