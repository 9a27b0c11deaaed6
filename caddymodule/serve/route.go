package serve

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Router sends requests through the tunnels of their deployments.
type Router struct {
	*Server
	ConnectWait time.Duration // for a connector that is reconnecting
	Queue       queue.Bounds
}

// Serve sends the request when its turn comes. It keeps the place in the
// deployment's queue until the client is answered, including retries. A retry uses
// the current route of the deployment.
func (rt *Router) Serve(r *http.Request) error {
	ex, err := ExchangeOf(r)
	if err != nil {
		return err
	}
	b, err := rt.Open()
	if err != nil {
		return err
	}
	place, err := rt.enter(r.Context(), b.Queues, ex)
	if err != nil {
		return err
	}
	defer place.Leave()
	deployment := ex.found
	for changed := place.Waited(); ; changed = true {
		if changed {
			var derr *dialect.Error
			if deployment, derr = rt.find(b.Store, ex); derr != nil {
				return derr
			}
		}
		tunnels, ok := rt.Tunnels()
		if !ok { // this configuration is starting or has been unloaded
			return dialect.Offline(ex.Deployment)
		}
		response, err := rt.send(r.Context(), ex, tunnels, deployment)
		if err != nil {
			return err
		}
		if again := ex.completion.receive(response); !again {
			return nil
		}
	}
}

// enter waits for the request's turn.
func (rt *Router) enter(ctx context.Context, queues *queue.Queues, ex *Exchange) (queue.Place, error) {
	n := queue.Name{Account: ex.Account, Deployment: ex.Deployment}
	place, err := queues.Enter(ctx, n, ex.Key.ID(), rt.Queue)
	switch {
	case errors.Is(err, queue.ErrFull):
		rt.Observer.Rejected(ex, "full")
		return place, dialect.QueueFull(ex.Deployment)
	case errors.Is(err, queue.ErrTimeout):
		rt.Observer.Rejected(ex, "timeout")
		return place, dialect.QueueTimeout(ex.Deployment)
	}
	return place, err
}

// send sends the request to one of the deployment's connectors. It tries each at
// most once, as long as no model has seen the request. If all are offline, it waits
// up to ConnectWait for one to reconnect.
func (rt *Router) send(ctx context.Context, ex *Exchange, tunnels Tunnels, d store.Deployment) (*http.Response, error) {
	to := tunnel.Target{Name: ex.Deployment, Upstream: d.Upstream, Model: d.Model}
	deadline := time.Now().Add(rt.ConnectWait)
	if len(d.Connectors) == 1 {
		ex.Connector = d.Connectors[0] // for the log, should it be offline
	}
	var tried []Tunnel
	var unable error // why an online connector cannot serve the request
	for {
		chosen, ok := tunnels.Choose(d.Connectors, to, tried)
		if !ok && unable != nil {
			if errors.Is(unable, tunnel.ErrNoRoute) {
				rt.Logger.Error("deployment is not configured", "deployment", ex.Deployment, "error", unable)
			}
			return nil, rt.clientError(ctx, ex, unable)
		}
		var err error
		if !ok {
			if chosen, err = await(ctx, tunnels, d.Connectors, to, tried, deadline); err != nil {
				return nil, rt.clientError(ctx, ex, err)
			}
		}
		ex.Connector = chosen.Connector()
		response, err := roundTrip(ctx, ex, chosen, d.Upstream, d.Model)
		if err == nil {
			rt.Observer.FirstByte(ex)
			return response, nil
		}
		late := rt.ConnectWait > 0 && time.Now().After(deadline)
		if ctx.Err() != nil || late || !untouched(err) {
			return nil, rt.clientError(ctx, ex, err)
		}
		tried = append(tried, chosen)
		if unable == nil && !errors.Is(err, link.ErrNotSent) {
			unable = err
		}
	}
}

// await waits until one of the connectors is online. A connector that drains may
// briefly still appear to be online.
func await(ctx context.Context, tunnels Tunnels, connectors []string, to tunnel.Target, tried []Tunnel, deadline time.Time) (Tunnel, error) {
	const again = 10 * time.Millisecond
	for {
		chosen, err := tunnels.WaitAny(ctx, connectors, to, time.Until(deadline))
		if err != nil || !slices.Contains(tried, chosen) {
			return chosen, err
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

// untouched reports whether an error means that no model has seen the request.
func untouched(err error) bool {
	return errors.Is(err, link.ErrNotSent) || errors.Is(err, link.ErrNoCredit) || errors.Is(err, link.ErrBusy) ||
		errors.Is(err, link.ErrUpstreamDown) || errors.Is(err, tunnel.ErrNoRoute)
}

// roundTrip sends the request through one tunnel.
func roundTrip(ctx context.Context, ex *Exchange, to Tunnel, upstream, model string) (*http.Response, error) {
	upstream, model, err := to.Resolve(ex.Deployment, upstream, model)
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
	return to.RoundTrip(r)
}

// clientError returns the client's error for a request that was not answered.
func (rt *Router) clientError(ctx context.Context, ex *Exchange, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, tunnel.ErrOffline), errors.Is(err, link.ErrNotSent), errors.Is(err, link.ErrDraining):
		return dialect.Offline(ex.Deployment)
	case errors.Is(err, link.ErrNoCredit):
		rt.Observer.Rejected(ex, "connector")
		return dialect.ConnectorFull(ex.Deployment)
	case errors.Is(err, tunnel.ErrNoRoute):
		return dialect.NoRoute(ex.Deployment)
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
