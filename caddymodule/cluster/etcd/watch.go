package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// maxBehind is the number of changes that a watcher keeps for Next.
	maxBehind = 100_000
	// askPause is the time between two requests for progress. etcd does not answer one while the
	// watch is behind.
	askPause = 50 * time.Millisecond
	// idlePause is the same while the watch has reached the latest known revision.
	idlePause = time.Second
	// silentTimeout is how long a stream may deliver nothing while the watch is behind. The client
	// of etcd takes 13 seconds to notice that a machine has vanished.
	silentTimeout = 3 * time.Second
)

var (
	errSilent = errors.New("etcd did not answer in time")
	errEnded  = errors.New("etcd has ended the watch")
)

// watcher reads all changes as soon as they arrive. The client of etcd would buffer any number of
// unread ones.
type watcher struct {
	k          *kv
	start, end string // of etcd
	close      context.CancelFunc
	ask        chan struct{} // requests of Progress for a notification

	mu       sync.Mutex
	received store.Batch // changes that Next has not yet returned, and the revision that was reached
	returned int64       // revision that Next has returned
	err      error       // reason for the end of the watcher
	changed  wait.Change // of received and err
}

// Watch implements [store.KV].
func (k *kv) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	if k.ctx.Err() != nil {
		return nil, store.ErrClosed
	}
	if from <= 0 {
		revision, err := k.revision(ctx)
		if err != nil {
			return nil, err
		}
		from = revision + 1
	}
	w := &watcher{k: k, ask: make(chan struct{}, 1), received: store.Batch{Revision: from - 1}, returned: from - 1}
	w.start, w.end = k.bounds(span)
	closed, cancel := context.WithCancel(k.ctx)
	w.close = cancel
	go w.run(closed)
	return w, nil
}

func (w *watcher) Close() { w.close() }

func (w *watcher) Next(ctx context.Context) (store.Batch, error) {
	for {
		changed := w.changed.Next()
		if batch, ok, err := w.take(); ok || err != nil {
			return batch, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return store.Batch{}, ctx.Err()
		}
	}
}

// take returns the changes since the last call. ok is false if there are none.
func (w *watcher) take() (batch store.Batch, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.received.Revision == w.returned {
		return store.Batch{}, false, w.err
	}
	batch = w.received
	w.received.Events, w.returned = nil, batch.Revision
	return batch, true, nil
}

// Progress reads etcd's revision, and requests a progress notification in case the watch does not get there
// by a change.
func (w *watcher) Progress(ctx context.Context) (int64, error) {
	if _, err := w.reached(); err != nil {
		return 0, err
	}
	revision, err := w.k.revision(ctx)
	if err == nil {
		wait.Wake(w.ask, struct{}{})
	}
	return revision, err
}

// reached returns the revision up to which all changes were received, and the reason for the end of the
// watcher.
func (w *watcher) reached() (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.received.Revision, w.err
}

// run reads one stream after another until the watcher ends.
func (w *watcher) run(ctx context.Context) {
	defer w.close()
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			p.Log(w.k.logger, "watching the store in etcd")
			w.fail(p)
		}
	}()
	for pause := time.Duration(0); ; pause = min(2*pause+10*time.Millisecond, maxPause) {
		before, _ := w.reached()
		err := w.stream(ctx)
		switch {
		case ctx.Err() != nil:
			w.fail(store.ErrClosed)
			return
		case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, store.ErrCompacted):
			w.fail(w.k.explain(err))
			return
		}
		w.k.logger.Debug("lost the watch of the store in etcd; trying again", "error", err)
		if now, _ := w.reached(); now > before {
			pause = 0
		}
		_ = wait.For(ctx, pause) // if ctx ends, the next stream does, too
	}
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.changed.Now()
}

// stream watches from the revision that was reached until that fails. The client of etcd reconnects
// by itself after most failures.
func (w *watcher) stream(ctx context.Context) error {
	watches := clientv3.NewWatcher(w.k.client) // for a stream of its own
	defer func() { _ = watches.Close() }()     // its error is the reason for the stream's end
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer cancel(nil)
	unconfirmed := time.AfterFunc(attemptTime, func() { cancel(errSilent) })
	reached, _ := w.reached()
	responses := watches.Watch(ctx, w.start, clientv3.WithRange(w.end), clientv3.WithRev(reached+1),
		clientv3.WithFragment(), clientv3.WithProgressNotify())
	unconfirmed.Stop()
	for last, pause := time.Now(), idlePause; ; {
		select {
		case resp, ok := <-responses:
			switch {
			case !ok && ctx.Err() == nil:
				return errEnded
			case !ok:
				return context.Cause(ctx)
			case resp.Err() != nil:
				return resp.Err()
			}
			if err := w.receive(&resp); err != nil {
				return err
			}
			last = time.Now()
			continue
		case <-w.ask:
		case <-time.After(pause):
		}
		pause = askPause
		switch reached, _ := w.reached(); {
		case reached >= w.k.seen.Load():
			last, pause = time.Now(), idlePause
		case time.Since(last) > silentTimeout:
			return errSilent
		default:
			if err := watches.RequestProgress(ctx); err != nil {
				return err
			}
		}
	}
}

// receive adds the changes of a response, or the progress if it has none.
func (w *watcher) receive(resp *clientv3.WatchResponse) error {
	revision := resp.Header.Revision
	if n := len(resp.Events); n > 0 {
		revision = resp.Events[n-1].Kv.ModRevision
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if revision <= w.received.Revision {
		return nil
	}
	for _, e := range resp.Events {
		if event := w.k.event(e); !hidden(event.Item.Key) {
			w.received.Events = append(w.received.Events, event)
		}
	}
	if len(w.received.Events) > maxBehind {
		return store.Errorf(store.ErrCompacted, "the store in etcd has changed faster than this gateway follows: "+
			"it reads the whole store again")
	}
	w.received.Revision = revision
	w.changed.Now()
	return w.k.see(0, revision)
}

// event returns the event of the store for one of etcd.
func (k *kv) event(e *clientv3.Event) store.Event {
	item := k.item(e.Kv)
	if e.Type == clientv3.EventTypeDelete {
		return store.Event{Item: store.Item{Key: item.Key, ModRevision: item.ModRevision}, Deleted: true}
	}
	return store.Event{Item: item}
}
