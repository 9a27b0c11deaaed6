package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/storetest"
)

// line is an edge's connection to the store. While it is cut, calls wait, and nothing comes
// from watchers; calls that wait may have been carried out, or be carried out later.
type line struct {
	*storetest.Shared
	r      *rig
	clocks *clocks
	slow   atomic.Int64 // the time that a call, or a batch of changes, takes at most
	late   atomic.Bool  // transactions that were given up are carried out later
	full   atomic.Bool  // the store has no space
	fill   atomic.Bool  // it has none after the next change of an edge

	mu   sync.Mutex
	open chan struct{} // closed while the line works
	lost chan struct{} // closed when the line is cut
	dead bool

	compactions []int64 // revisions

	panics   atomic.Pointer[string]    // transactions that write a key with this prefix panic; nil: none
	kept     atomic.Pointer[func()]    // called when the store has renewed a lease
	reported atomic.Pointer[store.Txn] // with the last report
}

var errLine = fmt.Errorf("%w: the line is cut", store.ErrUnavailable)

func newLine(r *rig, c *clocks) *line {
	l := &line{Shared: storetest.Share(r.kv), r: r, clocks: c, open: make(chan struct{}), lost: make(chan struct{})}
	close(l.open)
	return l
}

// set cuts the line or mends it.
func (l *line) set(works bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		if !works {
			l.open = make(chan struct{})
			close(l.lost)
			open := l.open
			go l.CutOff(errLine, func() { <-open })
		}
	default:
		if works {
			l.lost = make(chan struct{})
			close(l.open)
		}
	}
}

// die makes all calls fail from now on.
func (l *line) die() {
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.set(false)
	l.set(true)
}

// gone reports whether the edge has ended.
func (l *line) gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// call makes a call over the line, which may be cut before and after it.
func call[T any](ctx context.Context, l *line, f func() (T, error)) (T, error) {
	defer l.clocks.wait()
	var none T
	for {
		l.clocks.wait()
		l.mu.Lock()
		open, lost, dead := l.open, l.lost, l.dead
		l.mu.Unlock()
		if dead {
			return none, store.ErrClosed
		}
		select {
		case <-open:
		case <-ctx.Done():
			return none, fmt.Errorf("%w: %w", errLine, ctx.Err())
		}
		select {
		case <-lost: // an older state
			continue
		default:
		}
		result, err := f()
		select {
		case <-lost: // the answer is lost
			return none, errLine
		case <-ctx.Done():
			return none, fmt.Errorf("%w: %w", errLine, ctx.Err())
		case <-time.After(rand.N(max(20*time.Millisecond, time.Duration(l.slow.Load())))):
			return result, err
		}
	}
}

func (l *line) Get(ctx context.Context, key string) (store.Item, error) {
	return call(ctx, l, func() (store.Item, error) { return l.Shared.Get(ctx, key) })
}

func (l *line) Each(ctx context.Context, span store.Span, f func(store.Item) error) (int64, error) {
	return call(ctx, l, func() (int64, error) { return l.Shared.Each(ctx, span, f) })
}

func (l *line) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	writes := func(prefix string) bool {
		put := func(op store.Op) bool { return !op.Delete && strings.HasPrefix(op.Key, prefix) }
		return slices.ContainsFunc(t.Then, put)
	}
	if prefix := l.panics.Load(); prefix != nil && writes(*prefix) {
		panic(caught.Secret)
	}
	if writes("edge_reports/") {
		l.reported.Store(&t)
	}
	done := false
	result, err := call(ctx, l, func() (store.TxnResult, error) {
		if done = true; l.full.Load() && writes("") {
			return store.TxnResult{}, store.ErrNoSpace
		}
		if l.fill.Load() && writes("edges/") {
			defer l.full.Store(true)
		}
		return l.Shared.Txn(ctx, t)
	})
	if err != nil && !done && l.late.Load() {
		time.AfterFunc(rand.N(2*time.Minute), func() { _, _ = l.Shared.Txn(context.Background(), t) })
	}
	return result, err
}

func (l *line) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	w, err := call(ctx, l, func() (store.Watcher, error) { return l.Shared.Watch(ctx, span, from) })
	if err != nil {
		return nil, err
	}
	return &lineWatcher{w, l}, nil
}

func (l *line) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	ttl = time.Duration(float64(ttl) / l.r.rate)
	lease, err := call(ctx, l, func() (store.Lease, error) { return l.Shared.Lease(ctx, ttl) })
	if err != nil {
		return nil, err
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.leases = append(l.r.leases, lease)
	return &lineLease{lease, l}, nil
}

// Compact implements [store.Compacter].
func (l *line) Compact(_ context.Context, revision int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compactions = append(l.compactions, revision)
	return nil
}

func (l *line) compacted() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.compactions
}

type lineWatcher struct {
	store.Watcher
	l *line
}

func (w *lineWatcher) Next(ctx context.Context) (store.Batch, error) {
	defer w.l.clocks.wait()
	batch, err := w.Watcher.Next(ctx)
	time.Sleep(rand.N(time.Duration(w.l.slow.Load()) + 1))
	return batch, err
}

func (w *lineWatcher) Progress(ctx context.Context) (int64, error) {
	return call(ctx, w.l, func() (int64, error) { return w.Watcher.Progress(ctx) })
}

type lineLease struct {
	store.Lease
	l *line
}

func (l *lineLease) KeepAlive(ctx context.Context) error {
	_, err := call(ctx, l.l, func() (struct{}, error) {
		err := l.Lease.KeepAlive(ctx)
		if f := l.l.kept.Load(); f != nil {
			(*f)()
		}
		return struct{}{}, err
	})
	return err
}

func (l *lineLease) Revoke(ctx context.Context) error {
	_, err := call(ctx, l.l, func() (struct{}, error) { return struct{}{}, l.Lease.Revoke(ctx) })
	return err
}
