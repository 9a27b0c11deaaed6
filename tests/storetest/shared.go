package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Shared is a KV seen from one of several processes: closing it leaves it to the others, and
// its watchers can be cut off. As with an engine in another process, they deliver a batch
// without events only if Progress asks for it.
type Shared struct {
	store.KV

	mu   sync.Mutex
	cut  context.Context // of the next watchers: when it ends, they fail with its cause
	fail context.CancelCauseFunc
}

// Share returns kv for one more process.
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

// CutOff makes the watchers of now deliver nothing, runs f, and then fails them.
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

	mu    sync.Mutex
	at    int64              // revision of the last batch that the KV has delivered
	asked int64              // by Progress; 0: answered
	wake  context.CancelFunc // makes Next look at asked
}

func (w *sharedWatcher) Next(ctx context.Context) (store.Batch, error) {
	for {
		inner, cancel := context.WithCancel(ctx)
		w.mu.Lock()
		w.wake = cancel
		at, due := w.at, w.asked > 0 && w.at >= w.asked
		if due {
			w.asked = 0
		}
		w.mu.Unlock()
		if due {
			cancel()
			return store.Batch{Revision: at}, nil
		}
		stop := context.AfterFunc(w.cut, cancel)
		batch, err := w.Watcher.Next(inner)
		woken := inner.Err() != nil && ctx.Err() == nil
		stop()
		cancel()
		if w.deaf() {
			<-w.cut.Done()
			return store.Batch{}, context.Cause(w.cut)
		}
		if err == nil {
			w.mu.Lock()
			w.at = batch.Revision
			w.mu.Unlock()
		}
		if err != nil && !woken || len(batch.Events) > 0 {
			return batch, err
		}
	}
}

// deaf reports whether the watcher was cut off.
func (w *sharedWatcher) deaf() bool {
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
	w.asked = max(w.asked, revision)
	if w.wake != nil {
		w.wake()
	}
	return revision, nil
}
