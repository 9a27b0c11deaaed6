package etcd

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// askPause is the time between two requests for progress. etcd does not answer one while the
	// watch is behind.
	askPause = 50 * time.Millisecond
	// idlePause replaces it while the watch has reached the latest known revision.
	idlePause = time.Second
	// silentTimeout is how long a stream may deliver nothing while the watch is behind. The client
	// of etcd takes 13 seconds to notice that a machine has vanished.
	silentTimeout = 3 * time.Second
)

var (
	errSilent = errors.New("etcd did not answer in time")
	errEnded  = errors.New("etcd has ended the watch")
)

// watcher reads one stream of etcd after another.
type watcher struct {
	k           *kv
	span        store.Span
	ctx         context.Context // ends with the watcher
	close       context.CancelFunc
	askProgress chan struct{} // makes Next request progress
	compacted   atomic.Bool   // etcd has compacted changes that were not yet returned

	// Only Next uses these:
	reached      int64              // all changes up to this revision were returned
	stream       clientv3.Watcher   // serves only this watch
	responses    clientv3.WatchChan // nil: there is no stream
	cancelStream context.CancelFunc
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
	w := &watcher{k: k, span: span, askProgress: make(chan struct{}, 1), reached: from - 1}
	w.ctx, w.close = context.WithCancel(clientv3.WithRequireLeader(k.ctx))
	w.start(ctx)
	return w, nil
}

func (w *watcher) Close() { w.close() }

// Progress reads etcd's revision, and makes Next request a progress notification in case no change takes the
// watch there.
func (w *watcher) Progress(ctx context.Context) (int64, error) {
	switch {
	case w.compacted.Load():
		return 0, store.ErrCompacted
	case w.ctx.Err() != nil:
		return 0, store.ErrClosed
	}
	revision, err := w.k.revision(ctx)
	if err == nil {
		wait.Wake(w.askProgress, struct{}{})
	}
	return revision, err
}

func (w *watcher) Next(ctx context.Context) (store.Batch, error) {
	for pause := time.Duration(0); ; pause = min(2*pause+10*time.Millisecond, maxPause) {
		switch {
		case w.ctx.Err() != nil && w.responses == nil:
			return store.Batch{}, store.ErrClosed
		case w.responses == nil:
			_ = wait.For(ctx, pause) // if ctx ends, receive returns that
			w.start(ctx)
		}
		batch, err := w.receive(ctx)
		switch {
		case err == nil && batch.Revision > w.reached:
			w.reached = batch.Revision
			return batch, w.k.see(0, batch.Revision)
		case w.compacted.Load(), errors.Is(err, rpctypes.ErrCompacted):
			w.compacted.Store(true)
			w.close()
			return store.Batch{}, store.ErrCompacted
		case w.ctx.Err() != nil:
			return store.Batch{}, store.ErrClosed
		case ctx.Err() != nil:
			return store.Batch{}, ctx.Err()
		case err != nil:
			w.k.logger.Debug("lost the watch of the store in etcd; trying again", "error", err)
			w.cancelStream()
			_ = w.stream.Close() // its error is the reason for the stream's end
			w.responses = nil
		}
	}
}

// start opens a watch from the revision that was reached. ctx and attemptTime bound only the opening. The client
// of etcd reconnects by itself after most failures.
func (w *watcher) start(ctx context.Context) {
	var live context.Context
	live, w.cancelStream = context.WithCancel(w.ctx)
	w.stream = clientv3.NewWatcher(w.k.client)
	opening, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	defer context.AfterFunc(opening, w.cancelStream)()
	w.responses = w.stream.Watch(live, w.k.prefix+w.span.Start, clientv3.WithRange(w.k.end(w.span)),
		clientv3.WithRev(w.reached+1), clientv3.WithFragment(), clientv3.WithProgressNotify())
}

// receive returns the changes of a response, or the progress if the response contains no changes.
func (w *watcher) receive(ctx context.Context) (batch store.Batch, err error) {
	for upToDate := time.Now(); ; {
		pause := idlePause
		if w.reached < w.k.seen.Load() {
			pause = askPause
		}
		select {
		case resp, ok := <-w.responses:
			if !ok {
				return batch, errEnded
			}
			return w.batch(resp), resp.Err()
		case <-ctx.Done():
			return batch, ctx.Err()
		case <-w.askProgress:
		case <-time.After(pause):
		}
		switch {
		case w.reached >= w.k.seen.Load():
			upToDate = time.Now()
		case time.Since(upToDate) > silentTimeout:
			return batch, errSilent
		default: // the client does not answer while it reconnects
			asking, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), askPause)
			_ = w.stream.RequestProgress(asking)
			cancel()
		}
	}
}

func (w *watcher) batch(resp clientv3.WatchResponse) store.Batch {
	batch := store.Batch{Revision: resp.Header.Revision}
	for _, e := range resp.Events {
		item := w.k.item(e.Kv)
		batch.Revision = item.ModRevision
		if e.Type == clientv3.EventTypeDelete {
			item = store.Item{Key: item.Key, ModRevision: item.ModRevision}
		}
		if !strings.HasPrefix(item.Key, hidden) {
			batch.Events = append(batch.Events, store.Event{Item: item, Deleted: e.Type == clientv3.EventTypeDelete})
		}
	}
	return batch
}
