package caddymodule

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
)

// newQueues returns the queues of a store's deployments. unwatch ends what
// tells them of changes.
func newQueues(st *store.Store) (queues *queue.Queues, unwatch func()) {
	queues = queue.New(func(n queue.Name) int {
		d, _ := st.Deployment(n.Account, n.Deployment)
		return d.MaxConcurrency
	})
	unwatch = st.Subscribe(func(c store.Change) {
		if c.Kind != store.KindDeployment {
			return
		}
		if n := (queue.Name{Account: c.Account, Deployment: c.ID}); c.Removed {
			queues.Remove(n)
		} else {
			queues.Changed(n)
		}
	})
	return queues, unwatch
}

// admit returns the request's deployment when the request may run: it has its
// place then, until it has ended. A request that waited, or is sent a second
// time, goes where the deployment leads by then.
func (rt *Route) admit(ctx context.Context, ex *exchange) (store.Deployment, error) {
	open, err := rt.app.store.val.get()
	if err != nil {
		return store.Deployment{}, err
	}
	if ex.place.Held() { // this is the second try of the request
		return ex.again(open.store)
	}
	n := queue.Name{Account: ex.Account, Deployment: ex.Deployment}
	ex.place, err = open.queues.Enter(ctx, n, ex.Key.ID(), queue.Bounds{Length: rt.QueueLength, Wait: time.Duration(rt.QueueWait)})
	switch {
	case errors.Is(err, queue.ErrFull):
		queueRejectedTotal.WithLabelValues(ex.Deployment, "full").Inc()
		return store.Deployment{}, dialect.QueueFull(ex.Deployment)
	case errors.Is(err, queue.ErrTimeout):
		queueRejectedTotal.WithLabelValues(ex.Deployment, "timeout").Inc()
		return store.Deployment{}, dialect.QueueTimeout(ex.Deployment)
	case err != nil:
		return store.Deployment{}, err
	}
	if ex.place.Waited() {
		return ex.again(open.store)
	}
	return ex.found, nil
}

// again finds the deployment once more.
func (ex *exchange) again(st *store.Store) (store.Deployment, error) {
	deployment, derr := ex.find(st)
	if derr != nil {
		return store.Deployment{}, derr
	}
	return deployment, nil
}
