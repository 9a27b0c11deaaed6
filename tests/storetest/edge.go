package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/wait"
)

// Edge is the KV and the cluster of one of several gateways with one store. Its watchers are as
// late as possible: they deliver the changes of other gateways only after a call of Progress, or
// after a write of its own.
type Edge struct {
	store.KV

	mu      sync.Mutex
	reached int64       // watchers deliver changes up to this revision
	changed wait.Change // of reached
	cut     bool
	lost    bool
	over    bool // requests may not go on
	pending []store.PendingEdge
}

// errCut contains an address, which only operators may see.
var errCut = fmt.Errorf("%w: etcd at 10.9.8.7:2379 did not answer", store.ErrUnavailable)

// OpenEdge returns a store over kv for an edge.
func OpenEdge(t testing.TB, kv store.KV, o store.Options) (*store.Store, *Edge) {
	t.Helper()
	e := &Edge{KV: Share(kv)}
	o.Cluster = e
	s, err := store.New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Cut(false)
		closeAny(t, s)
	})
	return s, e
}

// Cut makes the KV fail with store.ErrUnavailable, or work again.
func (e *Edge) Cut(cut bool) { e.set(func() { e.cut = cut }) }

// Lose makes Serving fail, or succeed again.
func (e *Edge) Lose(lost bool) { e.set(func() { e.lost = lost }) }

// Suspend makes MayRun return false, as after a suspension for on_store_loss.
func (e *Edge) Suspend() { e.set(func() { e.over = true }) }

// Leave makes confirmed writes fail with these edges pending.
func (e *Edge) Leave(pending ...store.PendingEdge) { e.set(func() { e.pending = pending }) }

func (e *Edge) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// Reached implements [store.Cluster].
func (e *Edge) Reached(int64) {}

// Confirm implements [store.Cluster].
func (e *Edge) Confirm(context.Context, int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.pending) > 0 {
		return &store.Unconfirmed{Pending: e.pending}
	}
	return nil
}

var errLost = store.Errorf(store.ErrUnavailable, "this gateway has lost its store")

// Serving implements [store.Cluster].
func (e *Edge) Serving() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost {
		return errLost
	}
	return nil
}

// MayRun implements [store.Cluster].
func (e *Edge) MayRun() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.over
}

// InContact implements [store.Cluster].
func (e *Edge) InContact() bool { return e.Serving() == nil }

// Leader implements [store.Cluster].
func (e *Edge) Leader() bool { return false }

// deliver lets watchers deliver the changes up to a revision. It returns err, or errCut if the
// KV fails.
func (e *Edge) deliver(revision int64, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cut {
		return errCut
	}
	if err == nil && revision > e.reached {
		e.reached = revision
		e.changed.Now()
	}
	return err
}

// Txn implements [store.KV].
func (e *Edge) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := e.deliver(0, nil); err != nil {
		return store.TxnResult{}, err
	}
	result, err := e.KV.Txn(ctx, t)
	return result, e.deliver(result.Revision, err)
}

// Watch implements [store.KV].
func (e *Edge) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	w, err := e.KV.Watch(ctx, span, from)
	return &lateWatcher{Watcher: w, e: e}, err
}

type lateWatcher struct {
	store.Watcher
	e *Edge
}

func (w *lateWatcher) Progress(ctx context.Context) (int64, error) {
	revision, err := w.Watcher.Progress(ctx)
	return revision, w.e.deliver(revision, err)
}

func (w *lateWatcher) Next(ctx context.Context) (store.Batch, error) {
	batch, err := w.Watcher.Next(ctx)
	for err == nil {
		w.e.mu.Lock()
		reached, changed := w.e.reached, w.e.changed.Next()
		w.e.mu.Unlock()
		if batch.Revision <= reached {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return batch, err
}
