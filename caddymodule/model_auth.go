package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/serve"
)

// Auth checks API keys before it reads any of the request's body. It accepts
// `Authorization: Bearer sk-svc-…`, `x-api-key: sk-svc-…` or `api-key: sk-svc-…`
// (the first of these wins), responds with 401 in the dialect of the path, and
// stops running requests when their key is revoked. It removes a second /v1 and a
// slash at the end of the path, which some clients add.
//
// It is the first of three handlers of one route; their order is model_auth,
// model_dialect, model_route. A configuration with another order is refused.
//
// Placeholder | Value
// ------------|------
// `{http.auth.user.id}` | the key's id, not the key itself
// `{http.model_gateway.key_id}` | the same
type Auth struct {
	// The origins whose web pages may call the API, such as `https://chat.example.com`.
	// `*` allows any origin. Browsers ask first with an OPTIONS request, which has no key.
	// For other origins, it gets 405. Default: none.
	CORS []string `json:"cors,omitempty"`

	auth   serve.Authenticator
	access accessLog
}

// CaddyModule returns the module's registration.
func (Auth) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.model_auth", New: func() caddy.Module { return new(Auth) }}
}

// Provision finds the app.
func (a *Auth) Provision(ctx caddy.Context) error {
	a.access = newAccessLog(ctx)
	cors, err := serve.NewCORS(a.CORS)
	if err != nil {
		return err
	}
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	a.auth = serve.Authenticator{Server: app.server, CORS: cors}
	a.access.hidden = a.auth.PersonHeader
	return nil
}

// options returns the options of the directive.
func (a *Auth) options() options.List { return options.List{options.Texts("cors", &a.CORS)} }

// UnmarshalCaddyfile reads
//
//	model_auth {
//		cors <origin…>
//	}
func (a *Auth) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return a.options().Unmarshal(d) }

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (a *Auth) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	ex := serve.NewExchange()
	w, end := a.access.begin(w, r, ex)
	defer end()
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(ex.Placeholder)
	}
	a.auth.Serve(w, r, ex, next)
	return nil
}
