package serve

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/blocks"
)

// Router sends requests through the tunnels of their deployments.
type Router struct {
	*Server
	ConnectWait time.Duration // for a connector that is reconnecting
	Queue       queue.Bounds
	LimitWait   time.Duration // until a limit per minute allows a request
	ShortLimits bool          // errors about limits are without numbers
}

// Tunnel is a live tunnel, implemented by [tunnel.Session].
type Tunnel interface {
	Connector() string
	Resolve(name, upstream, model string) (string, string, error)
	Send(r *http.Request, c fair.Client) (*http.Response, error)
}

// Reserved is a tunnel with a place for one request, implemented by [tunnel.Reserved].
type Reserved interface {
	Tunnel
	Leave() // unless it was sent
}

// Serve sends the request when the limits allow it and its turn comes. It keeps the place in
// the deployment's queue until the client is answered, including retries. A retry uses
// the current route of the deployment.
func (rt *Router) Serve(r *http.Request) error {
	ex, err := exchangeOf(r)
	if err != nil {
		return err
	}
	ex.tries.begin(r.Context(), ex)
	waited, err := rt.admit(r.Context(), ex)
	if err != nil {
		return err
	}
	t := rt.newTurn(ex)
	if err := t.enter(r.Context(), rt.Queue.Length); err != nil {
		return err
	}
	defer t.leave()
	defer ex.completion.delivery.end() // after a panic
	for changed := waited || t.place.Waited(); ; changed = true {
		if changed {
			if derr := rt.find(ex); derr != nil {
				return derr
			}
		}
		response, err := t.send(r.Context())
		if err != nil {
			ex.completion.delivery.end()
			return rt.clientError(r.Context(), ex, err)
		}
		rt.Observer.FirstByte(ex)
		again := ex.completion.receive(response)
		ex.completion.delivery.end()
		if !again {
			return nil
		}
	}
}

// send sends the request to one of the deployment's connectors. It tries each at
// most once, as long as no model has seen the request. If all are offline, it waits
// up to ConnectWait for one to reconnect. If none has taken the request, full are those that had
// no place for it.
func (rt *Router) send(ctx context.Context, ex *Exchange,
	d store.Deployment) (response *http.Response, full []Tunnel, err error) {
	to := tunnel.Target{Name: ex.Deployment, Upstream: d.Upstream, Model: d.Model, Affinity: affinity(ex, d)}
	deadline := time.Now().Add(rt.ConnectWait)
	if len(d.Connectors) == 1 {
		ex.Connector = d.Connectors[0] // for the log, should it be offline
	}
	var tried []Tunnel
	var unable error // why an online connector cannot serve the request
	for {
		wait := time.Until(deadline)
		if unable != nil {
			wait = 0
		}
		chosen, err := rt.Choose(ctx, d.Connectors, to, tried, wait)
		if err != nil {
			return nil, full, cmp.Or(unable, err)
		}
		response, err = roundTrip(ctx, ex, chosen, d)
		if err == nil {
			return response, nil, nil
		}
		late := rt.ConnectWait > 0 && time.Now().After(deadline)
		r, _ := refusal(err)
		if ctx.Err() != nil || late || !r.again {
			return nil, nil, err
		}
		ex.tries.retry(ctx, ex, r.client(ex.Deployment))
		tried = append(tried, chosen)
		if errors.Is(err, link.ErrNoCredit) {
			full = append(full, chosen)
		}
		if !errors.Is(err, link.ErrNotSent) {
			unable = cmp.Or(unable, err)
		}
	}
}

// affinity returns the same number for requests that shall stay with one connector, 0 for those
// that need not.
func affinity(ex *Exchange, d store.Deployment) uint64 {
	if len(d.Connectors) < 2 || d.Options.Affinity == compat.AffinityOff {
		return 0
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, ex.Key.ID())
	if d.Options.Affinity != compat.AffinityKey {
		conversation := []byte(ex.completion.header.Get("X-Session-Id"))
		if len(conversation) == 0 {
			conversation = ex.completion.call.Conversation()
		}
		if len(conversation) == 0 {
			return 0
		}
		_, _ = h.Write(conversation)
	}
	return h.Sum64()
}

// roundTrip sends the request through one tunnel, unless the gateway has lost its store since it has
// checked the key: the request may have waited, and the process may have been stopped.
func roundTrip(ctx context.Context, ex *Exchange, to Tunnel, d store.Deployment) (*http.Response, error) {
	if ex.backend.Store.Serving() != nil {
		return nil, dialect.StoreLost()
	}
	ex.Connector = to.Connector()
	upstream, model, err := to.Resolve(ex.Deployment, d.Upstream, d.Model)
	if err != nil {
		return nil, err
	}
	header, body := ex.completion.upstreamRequest(model)
	ex.tries.send(ex, model, header)
	delivery := &ex.completion.delivery
	delivery.begin(body)
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Scheme: "http", Host: upstream, Path: ex.Operation.UpstreamPath()},
		Host:          upstream,
		Header:        header,
		Body:          body,
		ContentLength: body.Len(),
	}
	if ex.held.place != nil {
		r.Body = upload{body, ex.held.place}
	}
	if r.ContentLength >= blocks.Least {
		r.GetBody = func() (io.ReadCloser, error) {
			_, body := ex.completion.upstreamRequest(model)
			delivery.body = body
			return body, nil
		}
	}
	response, err := to.Send(r.WithContext(ctx), ex.client())
	if _, ok := refusal(err); ok {
		delivery.refuse()
	}
	return response, err
}

// upstreamRequest returns the header and the body of the upstream's request. Of the
// client's fields only trace context passes (W3C Trace Context §3). The connector has
// a list of its own, in connector/upstream/headers.go.
func (c *completion) upstreamRequest(model string) (http.Header, *dialect.Segments) {
	h := http.Header{"Content-Type": contentJSON, "Accept": contentJSON}
	if c.call.Streamed() && !c.unstreamed {
		h["Accept"] = contentEventStream
	}
	for _, name := range [...]string{"Traceparent", "Tracestate"} {
		if v := c.header[name]; v != nil {
			h[name] = v
		}
	}
	if c.unstreamed {
		return h, c.call.WholeBody(model)
	}
	return h, c.call.Body(model)
}

// refused is an error of a connector that did not take a request.
type refused struct {
	err    error
	again  bool // another connector may take it
	client func(deployment string) *dialect.Error
}

// refusals are all such errors, with the client's error for each.
var refusals = [...]refused{
	{tunnel.ErrOffline, false, dialect.Offline},
	{tunnel.ErrNoRoute, true, dialect.NoRoute},
	{link.ErrNotSent, true, dialect.Offline},
	{link.ErrNoCredit, true, dialect.ConnectorFull},
	{link.ErrBusy, true, dialect.ConnectorBusy},
	{link.ErrUpstreamDown, true, dialect.UpstreamUnreachable},
	{link.ErrTooLarge, false, dialect.UpstreamTooLarge},
	{link.ErrRefused, false, dialect.UpstreamRefused},
}

// refusal returns the refusal that an error is, if any.
func refusal(err error) (r refused, ok bool) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r, true
		}
	}
	return refused{}, false
}

// clientError returns the client's error for a request that was not answered.
func (rt *Router) clientError(ctx context.Context, ex *Exchange, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, new(*dialect.Error)):
		return err
	case errors.Is(err, link.ErrNoCredit):
		rt.Observer.Rejected(ex, "connector")
	case errors.Is(err, tunnel.ErrNoRoute):
		rt.Logger.Error("deployment is not configured", "deployment", ex.Deployment, "error", err)
	}
	if r, ok := refusal(err); ok {
		return r.client(ex.Deployment)
	}
	return lost(ex.Deployment, err)
}

// lost returns the client's error for an answer that was interrupted, even before it
// began.
func lost(deployment string, err error) *dialect.Error {
	switch {
	case errors.Is(err, link.ErrTunnelLost):
		return dialect.TunnelLost(deployment)
	case errors.Is(err, tunnel.ErrCompressed):
		return dialect.UpstreamCompressed(deployment)
	case errors.Is(err, link.ErrUpstreamMalformed):
		return dialect.UpstreamMalformed(deployment)
	}
	return dialect.UpstreamReset(deployment)
}
