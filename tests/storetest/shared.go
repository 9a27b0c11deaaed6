package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Shared is a KV as one of several processes has it. Close does not close it for the others, and
// its watchers can be cut off. As those of etcd, they deliver a batch without events only after a
// call of Progress.
type Shared struct {
	store.KV

	mu   sync.Mutex
	cut  context.Context // of the next watchers: when it ends, they fail with its cause
	fail context.CancelCauseFunc
}

// Share returns kv for another process.
func Share(kv store.KV) *Shared {
	s := &Shared{KV: kv}
	s.cut, s.fail = context.WithCancelCause(context.Background())
	return s
}

// Close does nothing.
func (s *Shared) Close() error { return nil }

// Lease implements [store.Leaser] if the KV does.
func (s *Shared) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	return s.KV.(store.Leaser).Lease(ctx, ttl)
}

// Watch implements [store.KV].
func (s *Shared) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.KV.Watch(ctx, span, from)
	return &sharedWatcher{Watcher: w, s: s, cut: s.cut}, err
}

// CutOff makes the present watchers deliver nothing, runs f, and then fails them with cause.
func (s *Shared) CutOff(cause error, f func()) {
	s.mu.Lock()
	fail := s.fail
	s.cut, s.fail = context.WithCancelCause(context.Background())
	s.mu.Unlock()
	f()
	fail(cause)
}

type sharedWatcher struct {
	store.Watcher
	s   *Shared
	cut context.Context

	mu        sync.Mutex
	reached   int64              // revision of the last batch that the KV has delivered
	requested int64              // by Progress; 0: delivered
	wake      context.CancelFunc // makes Next check requested
}

func (w *sharedWatcher) Next(ctx context.Context) (store.Batch, error) {
	for {
		inner, cancel := context.WithCancel(ctx)
		w.mu.Lock()
		w.wake = cancel
		reached, due := w.reached, w.requested > 0 && w.reached >= w.requested
		if due {
			w.requested = 0
		}
		w.mu.Unlock()
		if due {
			cancel()
			return store.Batch{Revision: reached}, nil
		}
		stop := context.AfterFunc(w.cut, cancel)
		batch, err := w.Watcher.Next(inner)
		woken := inner.Err() != nil && ctx.Err() == nil
		stop()
		cancel()
		if w.isCutOff() {
			<-w.cut.Done()
			return store.Batch{}, context.Cause(w.cut)
		}
		if err == nil {
			w.mu.Lock()
			w.reached = batch.Revision
			w.mu.Unlock()
		}
		if err != nil && !woken || len(batch.Events) > 0 {
			return batch, err
		}
	}
}

// isCutOff reports whether the watcher was cut off.
func (w *sharedWatcher) isCutOff() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.cut != w.cut
}

// Progress fails as Next does.
func (w *sharedWatcher) Progress(ctx context.Context) (int64, error) {
	if w.cut.Err() != nil {
		return 0, context.Cause(w.cut)
	}
	revision, err := w.Watcher.Progress(ctx)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requested = max(w.requested, revision)
	if w.wake != nil {
		w.wake()
	}
	return revision, nil
}
