package serve

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// turn is the turn of a request in the queue of its deployment.
type turn struct {
	*Router
	*modelRequest
	deployment *store.Deployment // as it is now
	permit     queue.Permit
	entered    bool      // the request has the permit
	end        time.Time // of waiting
}

// newTurn returns the turn of a request that has not entered the queue.
func (rt *Router) newTurn(m *modelRequest) *turn {
	end := time.Now().Add(cmp.Or(rt.Queue.Wait, queue.DefaultWait))
	return &turn{Router: rt, modelRequest: m, deployment: &m.deployment, end: end}
}

// find reads the deployment again: it may have changed while the request waited.
func (t *turn) find() (derr *dialect.Error) {
	if t.within != "" {
		return nil
	}
	ex := t.exchange
	d, ok := ex.backend.Store.Deployment(ex.Account, ex.Deployment)
	t.deployment = &d
	ex.Reason, derr = ex.check(d, ok)
	return derr
}

// enter waits for the request's turn, in a queue of this length.
func (t *turn) enter(ctx context.Context, length int) (err error) {
	ex, start := t.exchange, time.Now()
	err = t.acquire(ctx, length)
	if t.permit.Waited() || errors.Is(err, fair.ErrTimeout) {
		t.waited(start)
	}
	switch {
	case errors.Is(err, fair.ErrFull):
		t.Observer.Rejected(ex, "full")
		return dialect.QueueFull(ex.Deployment)
	case errors.Is(err, fair.ErrTimeout):
		t.Observer.Rejected(ex, "timeout")
		return dialect.QueueTimeout(ex.Deployment)
	}
	return err
}

// acquire acquires a permit of the queue, and waits for it if the length allows that.
func (t *turn) acquire(ctx context.Context, length int) (err error) {
	ex := t.exchange
	if t.within == ex.Deployment && t.within != "" {
		return nil
	}
	n := queue.Name{Account: ex.Account, Deployment: ex.Deployment}
	b := queue.Bounds{Length: length, Wait: cmp.Or(time.Until(t.end), -1)}
	t.permit, err = ex.backend.Queues.Enter(ctx, n, ex.client(), b)
	t.entered = err == nil
	return err
}

// waited reports how long the request has waited.
func (t *turn) waited(start time.Time) {
	waited := time.Since(start)
	t.Observer.Queued(t.exchange, waited)
	t.exchange.span.queued(waited)
}

// leave returns the permit.
func (t *turn) leave() {
	if t.entered {
		t.entered = false
		t.permit.Leave()
	}
}

// send sends the request. If the connectors have no permit for it, it waits for one of theirs, without
// the permit of the deployment's queue. It does not wait for the queue with a permit of a connector
// either: the requests of one deployment could have all permits there, while few of them run.
func (t *turn) send(ctx context.Context) (*http.Response, error) {
	for {
		response, full, err := t.sendNow(ctx)
		left := time.Until(t.end)
		if len(full) == 0 || left <= 0 || t.Queue.Length < 0 {
			return response, err
		}
		t.leave()
		start := time.Now()
		permitted, err := t.AwaitPermit(ctx, full, t.exchange.client(), left)
		t.waited(start)
		if err == nil {
			response, err = t.sendPermitted(ctx, permitted)
		}
		if !errors.Is(err, link.ErrNotSent) || ctx.Err() != nil {
			return response, err
		}
		if err := t.enterAgain(ctx); err != nil { // the tunnels have ended, or there was no turn
			return nil, err
		}
	}
}

// sendNow sends the request to one of the deployment's connectors. It tries each at
// most once, as long as no model has seen the request. If all are offline, it waits
// for one to reconnect, until ConnectWait after the last one was lost. If none has accepted the
// request, full lists the tunnels whose connectors have no permit for it.
func (t *turn) sendNow(ctx context.Context) (response *http.Response, full []Tunnel, err error) {
	ex, d := t.exchange, t.deployment
	target := tunnel.Target{
		Name: ex.Deployment, Upstream: d.Upstream, Model: d.Model, Affinity: t.affinity(),
		InOrder: d.Options.Order == compat.OrderFirst,
	}
	deadline := time.Now().Add(t.ConnectWait)
	connectors := t.fitting()
	if len(d.Connectors) == 1 {
		ex.Connector = d.Connectors[0] // for the log, if it is offline
	}
	var tried []Tunnel
	var unable error // why an online connector cannot serve the request
	for {
		wait := time.Until(deadline)
		if unable != nil {
			wait = 0
		}
		chosen, err := t.Choose(ctx, connectors, target, tried, wait)
		if err != nil {
			return nil, full, cmp.Or(unable, err)
		}
		response, err = t.roundTrip(ctx, chosen)
		if err == nil {
			return response, nil, nil
		}
		late := t.ConnectWait > 0 && time.Now().After(deadline)
		r, _ := refusal(err)
		if ctx.Err() != nil || late || !r.again {
			return nil, nil, err
		}
		ex.span.retry(ctx, ex, r.client(ex.Deployment))
		tried = append(tried, chosen)
		if errors.Is(err, link.ErrNoCredit) {
			full = append(full, chosen)
		}
		if !errors.Is(err, link.ErrNotSent) {
			unable = cmp.Or(unable, err)
		}
	}
}

// sendPermitted sends the request to a connector that has a permit for it. The error wraps
// link.ErrNotSent if the deployment's queue has no permit, or if the deployment has lost the connector.
func (t *turn) sendPermitted(ctx context.Context, permitted PermittedTunnel) (*http.Response, error) {
	defer permitted.Leave() // unless the request was sent
	switch err := t.acquire(ctx, -1); {
	case errors.Is(err, fair.ErrFull), errors.Is(err, fair.ErrTimeout):
		return nil, link.ErrNotSent
	case err != nil:
		return nil, err
	}
	if derr := t.find(); derr != nil {
		return nil, derr
	}
	if slices.Contains(t.deployment.Connectors, permitted.Connector()) {
		return t.roundTrip(ctx, permitted)
	}
	return nil, link.ErrNotSent
}

// enterAgain enters the deployment's queue again, unless the request has its permit.
func (t *turn) enterAgain(ctx context.Context) error {
	if t.entered {
		return nil
	}
	if err := t.enter(ctx, maxWaiting); err != nil { // the queue has accepted it before
		return err
	}
	if derr := t.find(); derr != nil {
		return derr
	}
	return nil
}

// affinity returns a number that is equal for requests that should go to one connector, or 0 for a
// request that may go to any.
func (t *turn) affinity() uint64 {
	d := t.deployment
	if len(d.Connectors) < 2 || d.Options.Affinity == compat.AffinityOff {
		return 0
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, t.exchange.Key.ID())
	if d.Options.Affinity != compat.AffinityKey {
		conversation := []byte(t.header.Get("X-Session-Id"))
		if len(conversation) == 0 {
			conversation = t.call.Conversation()
		}
		if len(conversation) == 0 {
			return 0
		}
		_, _ = h.Write(conversation)
	}
	return h.Sum64()
}

// roundTrip sends the request through one tunnel. It fails if the gateway has lost its store since it
// checked the key: the request may have waited, or the process may have been suspended.
func (t *turn) roundTrip(ctx context.Context, chosen Tunnel) (*http.Response, error) {
	ex, d := t.exchange, t.deployment
	if ex.backend.Store.Serving() != nil {
		return nil, dialect.StoreLost(false)
	}
	ex.Connector = chosen.Connector()
	upstream, model, err := chosen.Resolve(ex.Deployment, d.Upstream, d.Model)
	if err != nil {
		return nil, err
	}
	t.shorten()
	header, body := t.upstream(model)
	ex.span.send(t.modelRequest, model, header)
	ex.attempts.begin(body)
	ctx = ex.attempts.first.begin(ctx, t)
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Scheme: "http", Host: upstream, Path: ex.Operation.UpstreamPath()},
		Host:          upstream,
		Header:        header,
		Body:          body,
		ContentLength: body.Len(),
	}
	if t.large != nil {
		r.Body = upload{body, t.large}
	}
	response, err := chosen.Send(r.WithContext(ctx), ex.client())
	if err != nil {
		ex.attempts.first.end()
	}
	if _, ok := refusal(err); ok {
		ex.attempts.refuse()
	}
	if err == nil && response.StatusCode == http.StatusOK {
		t.Recheck(ex.Connector, tunnel.Target{Name: ex.Deployment, Upstream: d.Upstream, Model: d.Model})
	}
	return response, err
}
