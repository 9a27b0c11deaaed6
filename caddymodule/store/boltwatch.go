package store

import (
	"context"
	"slices"
	"sync"

	"github.com/postern-dev/postern/connector/wait"
)

// history keeps the last transactions for watchers, which read at their own pace. A
// watcher that falls behind gets ErrCompacted, so that stalled watchers cost no memory.
type history struct {
	limit int // of the bytes of batches

	mu        sync.Mutex
	batches   []Batch // of the revisions compacted+1, compacted+2, …
	bytes     int     // of batches
	compacted int64   // transactions up to this revision are dropped
	closed    bool
	changed   wait.Change // of the fields above
}

func newHistory(revision int64, limit int) *history {
	return &history{limit: limit, compacted: revision}
}

// size returns about how much memory a batch occupies.
func (b Batch) size() int {
	const ofBatch, ofEvent = 64, 128
	size := ofBatch
	for _, e := range b.Events {
		size += ofEvent + len(e.Item.Key) + len(e.Item.Value)
	}
	return size
}

// add appends the next transaction, and drops the oldest ones above the limit.
func (h *history) add(b Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches = append(h.batches, b)
	h.bytes += b.size()
	for h.bytes > h.limit {
		h.bytes -= h.batches[0].size()
		h.batches[0] = Batch{} // the array stays until append needs a larger one
		h.batches = h.batches[1:]
		h.compacted++
	}
	h.changed.Now()
}

// reset drops the history and continues at revision. Watchers that are behind must read
// the state and watch again.
func (h *history) reset(revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches, h.bytes, h.compacted = nil, 0, revision
	h.changed.Now()
}

func (h *history) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.changed.Now()
}

func (h *history) watch(span Span, from int64) (*boltWatcher, error) {
	if from <= 0 {
		revision, err := h.revision()
		if err != nil {
			return nil, err
		}
		from = revision + 1
	}
	if _, _, err := h.batch(from); err != nil {
		return nil, err
	}
	w := &boltWatcher{h: h, span: span, next: from}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w, nil
}

// revision returns that of the last transaction.
func (h *history) revision() (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, ErrClosed
	}
	return h.compacted + int64(len(h.batches)), nil
}

// batch returns the batch of the given revision, or a channel that is closed when it may
// be available.
func (h *history) batch(revision int64) (Batch, <-chan struct{}, error) {
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
	return Batch{}, h.changed.Next(), nil
}

type boltWatcher struct {
	h    *history
	span Span
	next int64 // revision
	ctx  context.Context
	stop context.CancelFunc
}

func (w *boltWatcher) Next(ctx context.Context) (Batch, error) {
	outside := func(e Event) bool { return !w.span.Contains(e.Item.Key) }
	for {
		batch, changed, err := w.h.batch(w.next)
		switch {
		case w.ctx.Err() != nil:
			return Batch{}, ErrClosed
		case ctx.Err() != nil:
			return Batch{}, ctx.Err()
		case err != nil:
			return Batch{}, err
		case changed == nil:
			w.next = batch.Revision + 1
			if slices.ContainsFunc(batch.Events, outside) {
				batch.Events = slices.DeleteFunc(slices.Clone(batch.Events), outside) // shared with other watchers
			}
			return batch, nil
		}
		select {
		case <-changed:
		case <-w.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// Progress need not request a batch: Next returns one for every revision.
func (w *boltWatcher) Progress(context.Context) (int64, error) {
	if w.ctx.Err() != nil {
		return 0, ErrClosed
	}
	return w.h.revision()
}

func (w *boltWatcher) Close() { w.stop() }
