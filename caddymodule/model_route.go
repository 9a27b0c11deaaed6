package caddymodule

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/serve"
)

// Route finds the deployment of the requested model and checks that the key's
// scope allows it. If the deployment is at its limit, the request is queued. Then
// it is sent through the tunnel of the deployment's least busy connector.
// model_dialect renders the upstream's answer or the error.
//
// It is the last of three handlers of one route; their order is model_auth,
// model_dialect, model_route. A configuration with another order is refused.
//
// Placeholder | Value
// ------------|------
// `{http.model_gateway.deployment}` | the deployment's name
// `{http.model_gateway.connector}` | the connector's id
type Route struct {
	// How long requests wait for a connector that is reconnecting, from its loss on.
	// Default: 3s. Negative: not at all.
	ConnectWait caddy.Duration `json:"connect_wait,omitempty"`

	// How many requests for a deployment with max_concurrency may be queued.
	// Default: 64. Negative: none.
	QueueLength int `json:"queue_length,omitempty"`

	// How long a request stays queued or waits for a connector that is at its limit.
	// Default: 1m. Negative: not at all.
	QueueWait caddy.Duration `json:"queue_wait,omitempty"`

	router serve.Router
}

// CaddyModule returns the module's registration.
func (Route) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.model_route", New: func() caddy.Module { return new(Route) }}
}

// Provision finds the app and sets defaults.
func (rt *Route) Provision(ctx caddy.Context) error {
	rt.ConnectWait = cmp.Or(rt.ConnectWait, caddy.Duration(serve.DefaultConnectWait))
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	rt.router = serve.Router{
		Server: app.server, ConnectWait: time.Duration(rt.ConnectWait),
		QueueLength: rt.QueueLength, QueueWait: time.Duration(rt.QueueWait),
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (rt *Route) ServeHTTP(_ http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return rt.router.Serve(r)
}

// options returns the options of the directive.
func (rt *Route) options() options.List {
	return options.List{
		options.Duration("connect_wait", &rt.ConnectWait),
		options.Count("queue_length", &rt.QueueLength),
		options.Duration("queue_wait", &rt.QueueWait),
	}
}

// UnmarshalCaddyfile reads
//
//	model_route {
//		connect_wait <duration>
//		queue_length <count>
//		queue_wait   <duration>
//	}
func (rt *Route) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return rt.options().Unmarshal(d) }
