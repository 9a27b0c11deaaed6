package store

import (
	"context"
	"slices"
	"sync"
)

// history keeps the last transactions for watchers, which read at their own pace. A
// watcher that falls behind gets ErrCompacted, so that stalled watchers cost no memory.
type history struct {
	limit int // of batches

	mu        sync.Mutex
	batches   []Batch // of the revisions compacted+1, compacted+2, …
	compacted int64   // transactions up to this revision are dropped
	closed    bool
	changed   chan struct{} // closed and replaced when a field above changes
}

func newHistory(revision int64, limit int) *history {
	return &history{limit: limit, compacted: revision, changed: make(chan struct{})}
}

// add appends the next transaction.
func (h *history) add(b Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches = append(h.batches, b)
	// Trim only at twice the limit, to amortize the cost of moving.
	if len(h.batches) >= 2*h.limit {
		h.batches = slices.Delete(h.batches, 0, h.limit)
		h.compacted += int64(h.limit)
	}
	h.broadcast()
}

// reset drops the history and continues at revision. Watchers that are behind must read
// the state and watch again.
func (h *history) reset(revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches, h.compacted = nil, revision
	h.broadcast()
}

func (h *history) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.broadcast()
}

func (h *history) broadcast() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *history) watch(span Span, from int64) (*boltWatcher, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if from <= 0 {
		from = h.compacted + int64(len(h.batches)) + 1
	}
	if from <= h.compacted {
		return nil, ErrCompacted
	}
	return &boltWatcher{h: h, span: span, next: from, closed: make(chan struct{})}, nil
}

// from returns the batch of the given revision, or a channel that is closed when it may
// be available.
func (h *history) from(revision int64) (Batch, <-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return Batch{}, nil, ErrClosed
	case revision <= h.compacted:
		return Batch{}, nil, ErrCompacted
	}
	if i := revision - h.compacted - 1; i < int64(len(h.batches)) {
		return h.batches[i], nil, nil
	}
	return Batch{}, h.changed, nil
}

type boltWatcher struct {
	h    *history
	span Span
	next int64 // revision

	once   sync.Once
	closed chan struct{}
}

func (w *boltWatcher) Next(ctx context.Context) (Batch, error) {
	for {
		select {
		case <-w.closed:
			return Batch{}, ErrClosed
		default:
		}
		if err := ctx.Err(); err != nil {
			return Batch{}, err
		}
		batch, wait, err := w.h.from(w.next)
		if err != nil {
			return Batch{}, err
		}
		if wait != nil {
			select {
			case <-wait:
			case <-w.closed:
			case <-ctx.Done():
			}
			continue
		}
		w.next = batch.Revision + 1
		if events := w.within(batch.Events); len(events) > 0 {
			return Batch{Revision: batch.Revision, Events: events}, nil
		}
	}
}

func (w *boltWatcher) within(events []Event) []Event {
	outside := func(e Event) bool { return !w.span.Contains(e.Item.Key) }
	if !slices.ContainsFunc(events, outside) {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), outside) // shared with other watchers
}

func (w *boltWatcher) Close() { w.once.Do(func() { close(w.closed) }) }
