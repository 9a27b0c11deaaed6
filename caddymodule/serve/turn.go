package serve

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/connector/link"
)

// turn is a request's place in the queue of its deployment.
type turn struct {
	*Router
	ex    *Exchange
	place queue.Place
	held  bool
	until time.Time // then it no longer waits
}

// newTurn returns the turn of a request that has not entered the queue.
func (rt *Router) newTurn(ex *Exchange) *turn {
	return &turn{Router: rt, ex: ex, until: time.Now().Add(cmp.Or(rt.Queue.Wait, queue.DefaultWait))}
}

// enter waits for the request's turn, in a queue of this length.
func (t *turn) enter(ctx context.Context, length int) (err error) {
	ex, start := t.ex, time.Now()
	err = t.take(ctx, length)
	if t.place.Waited() || errors.Is(err, queue.ErrTimeout) {
		t.waited(start)
	}
	switch {
	case errors.Is(err, queue.ErrFull):
		t.Observer.Rejected(ex, "full")
		return dialect.QueueFull(ex.Deployment)
	case errors.Is(err, queue.ErrTimeout):
		t.Observer.Rejected(ex, "timeout")
		return dialect.QueueTimeout(ex.Deployment)
	}
	return err
}

// take takes a place in the queue, and waits for it if the length allows that.
func (t *turn) take(ctx context.Context, length int) (err error) {
	n := queue.Name{Account: t.ex.Account, Deployment: t.ex.Deployment}
	b := queue.Bounds{Length: length, Wait: cmp.Or(time.Until(t.until), -1)}
	t.place, err = t.ex.backend.Queues.Enter(ctx, n, t.ex.client(), b)
	t.held = err == nil
	return err
}

// waited reports how long the request has waited.
func (t *turn) waited(start time.Time) {
	waited := time.Since(start)
	t.Observer.Queued(t.ex, waited)
	t.ex.tries.queued(waited)
}

// leave gives the place back.
func (t *turn) leave() {
	if t.held {
		t.held = false
		t.place.Leave()
	}
}

// send sends the request. If the connectors have no place for it, it waits for one, without the
// place in the deployment's queue. It does not wait for the queue with a place at a connector
// either: the requests of one deployment could hold all places there, while few of them run.
func (t *turn) send(ctx context.Context) (*http.Response, error) {
	ex := t.ex
	for {
		response, full, err := t.Router.send(ctx, ex, ex.found)
		left := time.Until(t.until)
		if len(full) == 0 || left <= 0 || t.Queue.Length < 0 {
			return response, err
		}
		t.leave()
		start := time.Now()
		reserved, err := t.Reserve(ctx, full, ex.client(), left)
		t.waited(start)
		if err == nil {
			response, err = t.sendReserved(ctx, reserved)
		}
		if !errors.Is(err, link.ErrNotSent) || ctx.Err() != nil {
			return response, err
		}
		if err := t.again(ctx); err != nil { // the tunnels have ended, or there was no turn
			return nil, err
		}
	}
}

// sendReserved sends the request to a connector that has a place for it. The error wraps
// link.ErrNotSent if the deployment's queue has none, or if the deployment has changed.
func (t *turn) sendReserved(ctx context.Context, to Reserved) (*http.Response, error) {
	defer to.Leave() // unless it was sent
	switch err := t.take(ctx, -1); {
	case errors.Is(err, queue.ErrFull), errors.Is(err, queue.ErrTimeout):
		return nil, link.ErrNotSent
	case err != nil:
		return nil, err
	}
	if derr := t.find(t.ex); derr != nil {
		return nil, derr
	}
	if d := t.ex.found; slices.Contains(d.Connectors, to.Connector()) {
		return roundTrip(ctx, t.ex, to, d)
	}
	return nil, link.ErrNotSent
}

// again enters the deployment's queue again, unless the request is in it. The deployment may have
// changed.
func (t *turn) again(ctx context.Context) error {
	if t.held {
		return nil
	}
	if err := t.enter(ctx, maxWaiting); err != nil { // the queue has accepted it before
		return err
	}
	if derr := t.find(t.ex); derr != nil {
		return derr
	}
	return nil
}
