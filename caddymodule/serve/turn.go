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

// turn is an attempt to send a request, which takes its turn in the queue of its deployment.
type turn struct {
	*Router
	*modelRequest
	deployment *store.Deployment // as it is now
	changed    bool              // the request has waited: the deployment may be another one
	end        time.Time         // of waiting
	candidates
}

// candidates are the tunnels of a request that has its turn.
type candidates struct {
	deadline time.Time // for one to reconnect; zero before the first choice
	tried    []Tunnel
	full     []Tunnel // of these, those whose connectors have no permit for the request
	unable   error    // why an online connector cannot serve the request
}

// newTurn returns the turn of a request. waited reports whether the request has waited for limits.
func (rt *Router) newTurn(m *modelRequest, waited bool) *turn {
	end := time.Now().Add(cmp.Or(rt.Queue.Wait, queue.DefaultWait) - m.waited)
	return &turn{Router: rt, modelRequest: m, deployment: &m.deployment, changed: waited || m.accepted, end: end}
}

// send sends the request to one of the deployment's connectors. It tries each at most once, as long as no model has
// seen the request.
func (t *turn) send(ctx context.Context) (*http.Response, error) {
	for {
		chosen, err := t.place(ctx)
		if err != nil {
			return nil, err
		}
		response, err := t.roundTrip(ctx, chosen)
		if permitted, ok := chosen.(PermittedTunnel); ok {
			permitted.Leave()
		}
		if err == nil || ctx.Err() != nil || !t.tryNext(ctx, chosen, err) {
			return response, err
		}
	}
}

// place waits until the request has its turn and a tunnel. If the connectors have no permit for it, it waits for one
// of theirs, without the permit of the deployment's queue. It does not wait for the queue with a permit of a connector
// either: the requests of one deployment could have all permits there, while few of them run.
func (t *turn) place(ctx context.Context) (Tunnel, error) {
	for {
		if !t.placed {
			if err := t.enter(ctx); err != nil {
				return nil, err
			}
		}
		chosen, err := t.choose(ctx)
		left := time.Until(t.end)
		if err == nil || len(t.full) == 0 || left <= 0 || t.Queue.Length < 0 {
			return chosen, err
		}
		t.leave()
		start := time.Now()
		permitted, err := t.AwaitPermit(ctx, t.full, t.exchange.client(), left)
		t.hasWaited(start)
		if err == nil {
			if err = t.enterPermitted(ctx, permitted); err == nil {
				return permitted, nil
			}
			permitted.Leave()
		}
		if !errors.Is(err, link.ErrNotSent) || ctx.Err() != nil {
			return nil, err
		}
		t.candidates = candidates{} // the tunnels have ended, or there was no turn
	}
}

// enter waits for the request's turn. A queue that has accepted the request before does not refuse it.
func (t *turn) enter(ctx context.Context) error {
	ex, start, length := t.exchange, time.Now(), t.Queue.Length
	if t.accepted && length >= 0 {
		length = maxWaiting
	}
	err := t.acquire(ctx, length)
	if t.permit.Waited() || errors.Is(err, fair.ErrTimeout) {
		t.hasWaited(start)
	}
	switch {
	case errors.Is(err, fair.ErrFull):
		t.Observer.Rejected(ex, "full")
		return dialect.QueueFull(ex.Deployment)
	case errors.Is(err, fair.ErrTimeout):
		t.Observer.Rejected(ex, "timeout")
		return dialect.QueueTimeout(ex.Deployment)
	case err != nil:
		return err
	}
	if t.accepted = true; t.changed || t.permit.Waited() {
		return t.find()
	}
	return nil
}

// acquire acquires a permit of the queue, and waits for it if the length allows that.
func (t *turn) acquire(ctx context.Context, length int) (err error) {
	ex := t.exchange
	n := queue.Name{Account: ex.Account, Deployment: ex.Deployment}
	b := queue.Bounds{Length: length, Wait: cmp.Or(time.Until(t.end), -1)}
	t.permit, err = ex.backend.Queues.Enter(ctx, n, ex.client(), b)
	t.placed = err == nil
	return err
}

// hasWaited reports how long the request has waited.
func (t *turn) hasWaited(start time.Time) {
	waited := time.Since(start)
	t.changed, t.waited = true, t.waited+waited
	t.Observer.Queued(t.exchange, waited)
	t.exchange.span.queued(waited)
}

// find reads the deployment again: it may have changed while the request waited.
func (t *turn) find() error {
	ex := t.exchange
	d, ok := ex.backend.Store.Deployment(ex.Account, ex.Deployment)
	t.deployment = &d
	var derr *dialect.Error
	switch {
	case !t.judge:
		ex.Reason, derr = ex.check(d, ok)
	case !ok:
		derr = dialect.JudgeGone(ex.Deployment)
	}
	if derr != nil {
		return derr
	}
	return nil
}

// choose chooses a tunnel. If all are offline, it waits for one to reconnect, until ConnectWait after the last one was
// lost.
func (t *turn) choose(ctx context.Context) (Tunnel, error) {
	ex, d := t.exchange, t.deployment
	if t.deadline.IsZero() {
		t.deadline = time.Now().Add(t.ConnectWait)
	}
	if len(d.Connectors) == 1 {
		ex.Connector = d.Connectors[0] // for the log, if it is offline
	}
	wait := time.Until(t.deadline)
	if t.unable != nil {
		wait = 0
	}
	chosen, err := t.Choose(ctx, t.fitting(), tunnel.Target{
		Name: ex.Deployment, Upstream: d.Upstream, Model: d.Model, Affinity: t.affinity(),
		InOrder: d.Options.Order == compat.OrderFirst,
	}, t.tried, wait)
	if err != nil {
		return nil, cmp.Or(t.unable, err)
	}
	return chosen, nil
}

// enterPermitted acquires a permit of the deployment's queue for a request that has one of a connector. The error wraps
// link.ErrNotSent if the queue has none, or if the deployment has lost the connector.
func (t *turn) enterPermitted(ctx context.Context, permitted PermittedTunnel) error {
	switch err := t.acquire(ctx, -1); {
	case errors.Is(err, fair.ErrFull), errors.Is(err, fair.ErrTimeout):
		return link.ErrNotSent
	case err != nil:
		return err
	}
	if err := t.find(); err != nil {
		return err
	}
	if !slices.Contains(t.deployment.Connectors, permitted.Connector()) {
		return link.ErrNotSent
	}
	return nil
}

// tryNext reports whether the request can be sent to another tunnel after an error of this one.
func (t *turn) tryNext(ctx context.Context, chosen Tunnel, err error) bool {
	if _, permitted := chosen.(PermittedTunnel); permitted {
		t.candidates = candidates{}
		return errors.Is(err, link.ErrNotSent)
	}
	late := t.ConnectWait > 0 && time.Now().After(t.deadline)
	r, _ := refusal(err)
	if late || !r.again {
		return false
	}
	t.exchange.span.retry(ctx, t.exchange, r.client(t.exchange.Deployment))
	t.tried = append(t.tried, chosen)
	if errors.Is(err, link.ErrNoCredit) {
		t.full = append(t.full, chosen)
	}
	if !errors.Is(err, link.ErrNotSent) {
		t.unable = cmp.Or(t.unable, err)
	}
	return true
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
	ex.attempts.begin(body, t.arrived)
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
