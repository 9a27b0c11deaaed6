package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

func init() {
	caddy.RegisterModule(Route{})
}

// Route finds the deployment of the model that a request names, checks that
// the key's scope allows it, and sends the request down the tunnel of the
// deployment's connector. It writes nothing to the client: the upstream's
// answer, or the error, is for model_dialect to render.
//
// Placeholder | Value
// ------------|------
// `{http.model_gateway.deployment}` | the deployment's name
// `{http.model_gateway.connector}` | id of the connector
type Route struct {
	// How long a request waits for a connector that is just reconnecting.
	// Default: 3s. Negative: not at all.
	ConnectWait caddy.Duration `json:"connect_wait,omitempty"`

	app *App
}

// CaddyModule returns the module's registration.
func (Route) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.model_route",
		New: func() caddy.Module { return new(Route) },
	}
}

// Provision finds the app and sets defaults.
func (rt *Route) Provision(ctx caddy.Context) error {
	if rt.ConnectWait == 0 {
		rt.ConnectWait = caddy.Duration(3 * time.Second)
	}
	return provisionApp(ctx, &rt.app)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (rt *Route) ServeHTTP(_ http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	ex, err := exchangeOf(r)
	if err != nil {
		return err
	}
	target, err := rt.target(ex)
	if err != nil {
		return err
	}
	hub, err := rt.app.tunnel.val.get()
	if err != nil { // this configuration is just starting, or gone
		return dialect.Offline(ex.Deployment)
	}
	deadline := time.Now().Add(time.Duration(rt.ConnectWait))
	for {
		session, err := hub.Wait(r.Context(), target.Connector, time.Until(deadline))
		if err != nil {
			return routeError(r.Context(), ex, err)
		}
		ex.Response, err = roundTrip(r.Context(), ex, session, target.Upstream, target.Model)
		// A session that ended before it took the request: nothing has
		// reached the upstream, the next session may have it.
		if errors.Is(err, link.ErrNotSent) && r.Context().Err() == nil && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			return routeError(r.Context(), ex, err)
		}
		ex.observeFirstByte()
		return nil
	}
}

// destination is where a deployment sends its requests.
type destination struct {
	Connector, Upstream, Model string
}

// target finds the deployment and checks the key's scope.
func (rt *Route) target(ex *exchange) (destination, error) {
	st, err := rt.app.openStore()
	if err != nil {
		return destination{}, err
	}
	deployment, derr := ex.find(st)
	if derr != nil {
		return destination{}, derr
	}
	ex.Connector = deployment.Connector
	return destination{deployment.Connector, deployment.Upstream, deployment.Model}, nil
}

// roundTrip sends the request down one session.
func roundTrip(ctx context.Context, ex *exchange, session *tunnel.Session, upstream, model string) (*http.Response, error) {
	upstream, model, err := session.Resolve(ex.Deployment, upstream, model)
	if err != nil {
		return nil, err
	}
	body := ex.Upstream.Body(model)
	r := (&http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Scheme: "http", Host: upstream, Path: ex.Upstream.Path},
		Host:          upstream,
		Header:        ex.Upstream.Header,
		Body:          body,
		ContentLength: body.Len(),
	}).WithContext(ctx)
	return session.RoundTrip(r)
}

// routeError says in the client's terms why a request did not get an answer.
func routeError(ctx context.Context, ex *exchange, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tunnel.ErrOffline), errors.Is(err, link.ErrNotSent), errors.Is(err, link.ErrDraining):
		return dialect.Offline(ex.Deployment)
	case errors.Is(err, tunnel.ErrNoRoute):
		return dialect.NoRoute(ex.Deployment, err.Error())
	case errors.Is(err, link.ErrUpstreamDown):
		return dialect.UpstreamUnreachable(ex.Deployment)
	case errors.Is(err, link.ErrTooLarge):
		return dialect.UpstreamTooLarge(ex.Deployment)
	case errors.Is(err, link.ErrRefused):
		return dialect.UpstreamRefused(ex.Deployment)
	default:
		return dialect.UpstreamReset(ex.Deployment)
	}
}

// parseOption reads one option of the directive.
func (rt *Route) parseOption(d *caddyfile.Dispenser) error {
	if d.Val() != "connect_wait" {
		return d.Errf("unrecognized option %q; expected connect_wait", d.Val())
	}
	return parseDuration(d, &rt.ConnectWait)
}

// UnmarshalCaddyfile reads
//
//	model_route {
//		connect_wait <duration>
//	}
func (rt *Route) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return parseBlock(d, rt.parseOption)
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Route)(nil)
	_ caddyhttp.MiddlewareHandler = (*Route)(nil)
	_ caddyfile.Unmarshaler       = (*Route)(nil)
)
