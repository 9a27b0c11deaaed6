package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

func init() {
	caddy.RegisterModule(Route{})
}

// Route finds the deployment of the model that a request names, checks that
// the key's scope allows it, waits for the request's turn if as many run as the
// deployment allows, and sends it down the tunnel of that one of the
// deployment's connectors that has the fewest requests. It writes nothing to the
// client: the upstream's answer, or the error, is for model_dialect to render.
//
// Placeholder | Value
// ------------|------
// `{http.model_gateway.deployment}` | the deployment's name
// `{http.model_gateway.connector}` | id of the connector
type Route struct {
	// How long a request waits for a connector that is just reconnecting.
	// Default: 3s. Negative: not at all.
	ConnectWait caddy.Duration `json:"connect_wait,omitempty"`

	// How many requests of one deployment with max_concurrency may wait for
	// their turn. Default: 64. Negative: none.
	QueueLength int `json:"queue_length,omitempty"`

	// How long a request waits for its turn. Default: 1m. Negative: not at all.
	QueueWait caddy.Duration `json:"queue_wait,omitempty"`

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
	deployment, err := rt.admit(r.Context(), ex)
	if err != nil {
		return err
	}
	hub, err := rt.app.tunnel.val.get()
	if err != nil { // this configuration is just starting, or gone
		return dialect.Offline(ex.Deployment)
	}
	return rt.send(r.Context(), ex, hub, deployment)
}

// send sends the request to one of the deployment's connectors. One that turns
// out not to have taken it is followed by the others, each at most once; if
// none is there, one that comes back within ConnectWait has it. What may have
// reached a model is never sent again.
func (rt *Route) send(ctx context.Context, ex *exchange, hub *tunnel.Hub, d store.Deployment) error {
	to := tunnel.Target{Name: ex.Deployment, Upstream: d.Upstream, Model: d.Model}
	deadline := time.Now().Add(time.Duration(rt.ConnectWait))
	if len(d.Connectors) == 1 {
		ex.Connector = d.Connectors[0] // for the log, should it be offline
	}
	var tried []*tunnel.Session
	var unable error // why one that is online cannot have the request
	for {
		session, ok := hub.Choose(d.Connectors, to, tried)
		if !ok && unable != nil {
			return routeError(ctx, ex, unable)
		}
		var err error
		if !ok {
			if session, err = rt.await(ctx, hub, d.Connectors, to, tried, deadline); err != nil {
				return routeError(ctx, ex, err)
			}
		}
		ex.Connector = session.Connector()
		ex.Response, err = roundTrip(ctx, ex, session, d.Upstream, d.Model)
		if err == nil {
			ex.observeFirstByte()
			return nil
		}
		late := rt.ConnectWait > 0 && time.Now().After(deadline)
		if ctx.Err() != nil || late || !untouched(err) {
			return routeError(ctx, ex, err)
		}
		tried = append(tried, session)
		if unable == nil && !errors.Is(err, link.ErrNotSent) {
			unable = err
		}
	}
}

// await waits until one of the connectors is back. One that drains may still
// seem to be there for a moment.
func (rt *Route) await(ctx context.Context, hub *tunnel.Hub, connectors []string, to tunnel.Target, tried []*tunnel.Session, deadline time.Time) (*tunnel.Session, error) {
	const again = 10 * time.Millisecond
	for {
		session, err := hub.WaitAny(ctx, connectors, to, time.Until(deadline))
		if err != nil || !slices.Contains(tried, session) {
			return session, err
		}
		if time.Until(deadline) < again {
			return nil, tunnel.ErrOffline
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(again):
		}
	}
}

// untouched tells whether an error says that no model has seen the request.
func untouched(err error) bool {
	return errors.Is(err, link.ErrNotSent) || errors.Is(err, link.ErrNoCredit) || errors.Is(err, link.ErrBusy) ||
		errors.Is(err, link.ErrUpstreamDown) || errors.Is(err, tunnel.ErrNoRoute)
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
	case errors.Is(err, link.ErrNoCredit):
		queueRejectedTotal.WithLabelValues(ex.Deployment, "connector").Inc()
		return dialect.ConnectorFull(ex.Deployment)
	case errors.Is(err, tunnel.ErrNoRoute):
		return dialect.NoRoute(ex.Deployment, err.Error())
	case errors.Is(err, link.ErrUpstreamDown):
		return dialect.UpstreamUnreachable(ex.Deployment)
	case errors.Is(err, link.ErrBusy):
		return dialect.ConnectorBusy(ex.Deployment)
	case errors.Is(err, link.ErrTooLarge):
		return dialect.UpstreamTooLarge(ex.Deployment)
	case errors.Is(err, link.ErrRefused):
		return dialect.UpstreamRefused(ex.Deployment)
	case errors.Is(err, tunnel.ErrCompressed):
		return dialect.UpstreamCompressed(ex.Deployment)
	case errors.Is(err, link.ErrTunnelLost):
		return dialect.TunnelLost(ex.Deployment)
	default:
		return dialect.UpstreamReset(ex.Deployment)
	}
}

// parseOption reads one option of the directive.
func (rt *Route) parseOption(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "connect_wait":
		return parseDuration(d, &rt.ConnectWait)
	case "queue_wait":
		return parseDuration(d, &rt.QueueWait)
	case "queue_length":
		return parseCount(d, &rt.QueueLength)
	default:
		return d.Errf("unrecognized option %q; expected connect_wait, queue_length or queue_wait", d.Val())
	}
}

// UnmarshalCaddyfile reads
//
//	model_route {
//		connect_wait <duration>
//		queue_length <count>
//		queue_wait   <duration>
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
