package caddymodule

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/serve"
)

// Dialect translates between the client's dialect and the upstream's. It picks
// the operation by method and path, reads the whole body and calls the next
// handler to fetch the upstream's answer. It renders that answer, streamed or
// whole, and every error in the dialect. The model list, token counts and stored
// responses are answered here.
//
// It is the second of three handlers of one route; their order is model_auth,
// model_dialect, model_route. A configuration with another order is refused.
//
// Placeholder | Value
// ------------|------
// `{http.model_gateway.dialect}` | chat, responses or messages
// `{http.model_gateway.model}` | the requested model, if it is a valid name
type Dialect struct {
	// The maximum size of a request body in bytes. It applies to the body as received, to
	// the decoded body, and to the body with the stored responses that it refers to.
	// Default: 33554432 (32 MiB).
	MaxBody int64 `json:"max_body,omitempty"`

	// How long a stream may be silent before a ping is sent, both before the
	// first byte of the upstream's answer and between events.
	// Default: 10s. Negative: no pings.
	KeepAlive caddy.Duration `json:"keep_alive,omitempty"`

	// Whether responses are stored in memory for previous_response_id,
	// item_reference and GET /v1/responses/{id}: "on", for the key that created
	// the response; "off", not at all.
	// Responses are stored for 30 minutes, 64 MiB in total. When the store is
	// full, it drops the oldest response of the key that uses most, in the
	// account that uses most. A key can read only responses of models within its scope.
	// Default: "on".
	ResponseStore string `json:"response_store,omitempty"`

	translator serve.Translator
}

// responseStores are the values of response_store.
var responseStores = []string{serve.StoreOn, serve.StoreOff}

// CaddyModule returns the module's registration.
func (Dialect) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.model_dialect", New: func() caddy.Module { return new(Dialect) }}
}

// Provision finds the app and sets defaults.
func (d *Dialect) Provision(ctx caddy.Context) error {
	d.MaxBody = cmp.Or(d.MaxBody, serve.DefaultMaxBody)
	d.KeepAlive = cmp.Or(d.KeepAlive, caddy.Duration(serve.DefaultKeepAlive))
	d.ResponseStore = cmp.Or(d.ResponseStore, serve.StoreOn)
	if !slices.Contains(responseStores, d.ResponseStore) {
		return fmt.Errorf("response_store: %q is not one of %s", d.ResponseStore, strings.Join(responseStores, ", "))
	}
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	d.translator = serve.Translator{
		Server: app.server, MaxBody: d.MaxBody, KeepAlive: time.Duration(d.KeepAlive),
		ResponseStore: d.ResponseStore,
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (d *Dialect) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return d.translator.Serve(w, r, next)
}

// options returns the options of the directive.
func (d *Dialect) options() options.List {
	return options.List{
		options.Size("max_body", &d.MaxBody),
		options.Duration("keep_alive", &d.KeepAlive),
		options.Word("response_store", &d.ResponseStore, responseStores...),
	}
}

// UnmarshalCaddyfile reads
//
//	model_dialect {
//		max_body   <size>
//		keep_alive <duration>
//		response_store on|off
//	}
func (d *Dialect) UnmarshalCaddyfile(t *caddyfile.Dispenser) error { return d.options().Unmarshal(t) }
