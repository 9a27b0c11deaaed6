package serve

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/link"
)

// routing sends an attempt of a request: it waits in the line of the deployment, and finds a connector that takes it.
type routing struct {
	*Router
	*modelRequest
	deployment   *store.Deployment // as it is now
	stale        bool              // the request has waited: the deployment may have changed
	tried        []Tunnel          // that did not take the request
	refusedBy    []string          // ids of connectors
	firstRefusal error             // the first of these refusals
}

// send sends the request to one of the deployment's connectors. It tries each at most once, as long as no model has
// seen the request.
func (t *routing) send(ctx context.Context) (*http.Response, error) {
	for {
		if err := t.await(ctx); err != nil {
			return nil, err
		}
		response, err := t.roundTrip(ctx)
		if err == nil {
			t.place.Answered()
			return response, nil
		}
		if ctx.Err() != nil || !t.tryNext(ctx, err) {
			return nil, err
		}
	}
}

// await waits for a place. It fails with an error for the client.
func (t *routing) await(ctx context.Context) error {
	ex := t.exchange
	for {
		q := t.request()
		began := time.Now()
		place, err := ex.backend.Turns.Wait(ctx, &q)
		if place != nil {
			t.place, t.hadPlace = place, true
		}
		if waited := time.Since(began); err != nil || place.Waited > t.waited {
			t.stale, t.waited = true, t.waited+waited
			if err == nil || errors.Is(err, turns.ErrTimeout) {
				t.Observer.Queued(ex, waited)
				ex.span.queued(waited)
			}
		}
		if err != nil {
			return t.placeError(err)
		}
		if ex.Connector = place.Connector; !t.stale {
			return nil
		}
		if err := t.readDeployment(); err != nil {
			t.leaveUnused()
			return err
		}
		if slices.Contains(t.deployment.Connectors, place.Connector) {
			return nil
		}
		t.leaveUnused()
		ex.backend.Turns.DeploymentChanged(ex.Account, ex.Deployment) // before the store reports it
	}
}

// request returns the request for the scheduler.
func (t *routing) request() turns.Request {
	ex, length := t.exchange, t.QueueLength
	if t.hadPlace && length >= 0 {
		length = math.MaxInt // a line that has accepted the request before does not refuse it
	}
	return turns.Request{
		Account: ex.Account, Deployment: ex.Deployment, Client: ex.client(), Priority: priorities[ex.Key.Priority()],
		Judge: t.judge, Arrived: t.arrived, Waited: t.waited, Affinity: t.affinity(), Unfit: t.unfit(),
		Refused: t.refusedBy, Length: length, Wait: t.QueueWait, ConnectWait: max(t.ConnectWait, 0),
	}
}

// priorities are the priorities of keys.
var priorities = map[store.Priority]turns.Priority{store.PriorityHigh: turns.High, store.PriorityLow: turns.Low}

// placeError returns the error for a request without a place.
func (t *routing) placeError(err error) error {
	ex := t.exchange
	switch {
	case errors.Is(err, turns.ErrFull):
		t.Observer.Rejected(ex, "full")
		return dialect.QueueFull(ex.Deployment)
	case errors.Is(err, turns.ErrTimeout):
		t.Observer.Rejected(ex, "timeout")
		return dialect.QueueTimeout(ex.Deployment)
	case errors.Is(err, turns.ErrOffline), errors.Is(err, turns.ErrUnfit):
		if d := t.deployment; len(d.Connectors) == 1 {
			ex.Connector = d.Connectors[0] // for the log
		}
		return dialect.Offline(ex.Deployment)
	case errors.Is(err, turns.ErrRefused):
		return t.firstRefusal
	case errors.Is(err, turns.ErrRemoved):
		if gone := t.readDeployment(); gone != nil {
			return gone
		}
		return dialect.Offline(ex.Deployment) // it was created again in this moment
	}
	return err
}

// readDeployment reads the deployment again: it may have changed while the request waited.
func (t *routing) readDeployment() error {
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

// tryNext reports whether the request can be sent to another connector, or through another tunnel, after an error.
func (t *routing) tryNext(ctx context.Context, err error) bool {
	ex, place := t.exchange, t.place
	r, _ := refusalOf(err)
	if !r.again || t.hasLeft() {
		return false
	}
	ex.span.retry(ctx, ex, r.client(ex.Deployment))
	replaced := false
	if errors.Is(err, link.ErrNotSent) { // the scheduler may learn of it in a moment only
		t.tried = append(t.tried, place.Tunnel.(Tunnel))
		replaced = ex.backend.connectors.replace(ex.Account, place.Connector, t.tried)
	}
	if !replaced {
		t.refusedBy, t.firstRefusal = append(t.refusedBy, place.Connector), cmp.Or(t.firstRefusal, err)
	}
	t.leaveUnused()
	return true
}

// affinity returns a number that is equal for requests that should go to one connector, or 0 for a
// request that may go to any.
func (t *routing) affinity() uint64 {
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
func (t *routing) roundTrip(ctx context.Context) (*http.Response, error) {
	ex, d := t.exchange, t.deployment
	if ex.backend.Store.Serving() != nil {
		return nil, dialect.StoreLost(false)
	}
	t.lowerLimit()
	header, body := t.upstream(t.place.Model)
	ex.span.send(t.modelRequest, t.place.Model, header)
	ex.attempts.begin(body, t.arrived)
	ctx = ex.attempts.first.begin(ctx, t)
	r := &http.Request{
		Method:        ex.Operation.UpstreamMethod(),
		URL:           &url.URL{Scheme: "http", Host: t.place.Server, Path: ex.Operation.UpstreamPath()},
		Host:          t.place.Server,
		Header:        header,
		Body:          body,
		ContentLength: body.Len(),
	}
	if ex.Operation.Kind == dialect.Voices {
		r.URL.RawQuery = "model=" + url.QueryEscape(t.place.Model)
	}
	response, err := t.place.Tunnel.(Tunnel).Send(r.WithContext(ctx), ex.Key.ID())
	if err != nil {
		ex.attempts.first.end()
	}
	if _, ok := refusalOf(err); ok {
		ex.attempts.refuse()
	}
	if err == nil && response.StatusCode == http.StatusOK {
		t.Recheck(ex.Connector, tunnel.Target{Name: ex.Deployment, Upstream: d.Upstream, Model: d.Model})
	}
	return response, err
}
