package caddymodule

import (
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/serve"
)

func init() {
	caddy.RegisterModule(Dialect{})
}

// Dialect speaks the caller's dialect: it picks the operation by method and
// path, reads the body to its end, lets the next handler fetch the upstream's
// answer, and renders that answer, streamed or whole, and every error, as the
// dialect demands. The list of models, counts of tokens and requests for kept
// responses end here.
//
// It is the second of three handlers of one route; their order is model_auth,
// model_dialect, model_route. A configuration with another order is refused.
//
// Placeholder | Value
// ------------|------
// `{http.model_gateway.dialect}` | chat, responses or messages
// `{http.model_gateway.model}` | the model that the client asked for, if that can be a name
type Dialect struct {
	// The largest request body, as it arrives and decoded, and together with
	// what it refers to of kept responses, in bytes.
	// Default: 33554432 (32 MiB).
	MaxBody int64 `json:"max_body,omitempty"`

	// How long a stream stays silent before a ping is sent, before the first
	// byte of the upstream's answer as well as between two events.
	// Default: 10s. Negative: no pings.
	KeepAlive caddy.Duration `json:"keep_alive,omitempty"`

	// Whether responses are kept in memory for previous_response_id,
	// item_reference and GET /v1/responses/{id}: "on", each for the key that
	// made it; "account", for all keys of its account; "off", none. They are
	// kept for 30 minutes and 64 MiB in all. When there is no room left, the
	// oldest is dropped of the key that holds most in the account that holds
	// most. A key reads only what models within its scope have made.
	// Default: "on".
	ResponseStore string `json:"response_store,omitempty"`

	translator serve.Translator
}

// CaddyModule returns the module's registration.
func (Dialect) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.model_dialect",
		New: func() caddy.Module { return new(Dialect) },
	}
}

// Provision finds the app and sets defaults.
func (d *Dialect) Provision(ctx caddy.Context) error {
	if d.MaxBody == 0 {
		d.MaxBody = 32 << 20
	}
	if d.KeepAlive == 0 {
		d.KeepAlive = caddy.Duration(10 * time.Second)
	}
	switch d.ResponseStore {
	case "":
		d.ResponseStore = serve.StoreOn
	case serve.StoreOn, serve.StoreOff, serve.StoreAccount:
	default:
		return fmt.Errorf("response_store: %q is not one of on, off, account", d.ResponseStore)
	}
	var app *App
	if err := provisionHandler(ctx, &app); err != nil {
		return err
	}
	d.translator = serve.Translator{Server: app.server, MaxBody: d.MaxBody, KeepAlive: time.Duration(d.KeepAlive), ResponseStore: d.ResponseStore}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (d *Dialect) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return outOfOrder(d.translator.Serve(w, r, next))
}

// parseOption reads one option of the directive.
func (d *Dialect) parseOption(t *caddyfile.Dispenser) error {
	switch t.Val() {
	case "max_body":
		return parseSize(t, &d.MaxBody)
	case "keep_alive":
		return parseDuration(t, &d.KeepAlive)
	case "response_store":
		return parseWord(t, &d.ResponseStore, serve.StoreOn, serve.StoreOff, serve.StoreAccount)
	default:
		return t.Errf("unrecognized option %q; expected max_body, keep_alive or response_store", t.Val())
	}
}

// UnmarshalCaddyfile reads
//
//	model_dialect {
//		max_body   <size>
//		keep_alive <duration>
//		response_store on|off|account
//	}
func (d *Dialect) UnmarshalCaddyfile(t *caddyfile.Dispenser) error {
	return parseBlock(t, d.parseOption)
}
