package serve

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// Router sends requests through the tunnels of their deployments.
type Router struct {
	*Server
	ConnectWait time.Duration // for a connector that is reconnecting, from its loss on
	QueueLength int           // how many requests of a deployment may wait; negative: none
	QueueWait   time.Duration // how long one may wait; negative: not at all
}

// Tunnel is a live tunnel, implemented by [tunnel.Session].
type Tunnel interface {
	Send(r *http.Request, key string) (*http.Response, error)
}

// Serve sends the request once, when the limits allow it and the deployment has a place for it. The answer is in the
// modelRequest, which has the place until it is released. A request that was sent before waits for a new place.
func (rt *Router) Serve(r *http.Request) error {
	m, err := modelRequestOf(r)
	if err != nil {
		return err
	}
	m.release() // if a handler in between sends the request again
	ctx, ex := r.Context(), m.exchange
	if m.arrived.IsZero() {
		m.arrived = time.Now()
		ex.span.begin(ctx, ex)
	}
	waited, err := rt.enterLimits(ctx, m)
	if err != nil {
		return err
	}
	response, err := (&routing{
		Router: rt, modelRequest: m, deployment: &m.deployment, stale: waited || m.hadPlace,
	}).send(ctx) //nolint:bodyclose // modelRequest.release closes it
	if err != nil {
		return rt.clientError(ctx, ex, err)
	}
	rt.Observer.FirstByte(ex)
	ex.attempts.answered(response.StatusCode)
	m.response = response
	return nil
}

// connectorRefusal is an error of a connector that did not accept a request.
type connectorRefusal struct {
	err    error
	again  bool // another connector may accept it
	client func(deployment string) *dialect.Error
}

// refusals are all such errors, with the client's error for each.
var refusals = [...]connectorRefusal{
	{tunnel.ErrNoRoute, false, dialect.NoRoute},
	{link.ErrNotSent, true, dialect.Offline},
	{link.ErrNoCredit, true, dialect.QueueFull},
	{link.ErrBusy, true, dialect.ConnectorBusy},
	{link.ErrUpstreamDown, true, dialect.UpstreamUnreachable},
	{link.ErrTooLarge, false, dialect.UpstreamTooLarge},
	{link.ErrRefused, false, dialect.UpstreamRefused},
}

// refusalOf finds an error in refusals.
func refusalOf(err error) (r connectorRefusal, ok bool) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r, true
		}
	}
	return connectorRefusal{}, false
}

// clientError returns the client's error for a request that was not answered.
func (rt *Router) clientError(ctx context.Context, ex *Exchange, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, new(*dialect.Error)):
		return err
	case errors.Is(err, tunnel.ErrNoRoute):
		rt.Logger.Error("deployment is not configured", "deployment", ex.Deployment, "error", err)
	}
	if r, ok := refusalOf(err); ok {
		return r.client(ex.Deployment)
	}
	return lost(ex.Deployment, err)
}

// lost returns the client's error for an answer that was interrupted, even before its beginning.
func lost(deployment string, err error) *dialect.Error {
	switch {
	case errors.Is(err, link.ErrSilent):
		return dialect.Silent(deployment)
	case errors.Is(err, link.ErrTunnelLost):
		return dialect.TunnelLost(deployment)
	case errors.Is(err, tunnel.ErrCompressed):
		return dialect.UpstreamCompressed(deployment)
	case errors.Is(err, link.ErrUpstreamMalformed):
		return dialect.UpstreamMalformed(deployment)
	}
	return dialect.UpstreamReset(deployment)
}
