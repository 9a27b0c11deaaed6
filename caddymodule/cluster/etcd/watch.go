package etcd

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
)

const (
	// askPause is between two requests for progress: etcd does not answer one if the
	// watch is behind.
	askPause = 50 * time.Millisecond
	// silence is how long a stream with outstanding changes may deliver nothing.
	silence = 3 * time.Second
)

var errSilent = errors.New("etcd did not answer in time")

// watcher reads a stream of its own. The client of etcd keeps all changes that are not
// yet read in memory; here etcd keeps them.
type watcher struct {
	k          *kv
	start, end string // of etcd
	batches    chan store.Batch
	done       chan struct{} // closed after err is set
	err        error
	close      context.CancelFunc

	reached atomic.Int64  // all changes up to this revision were received
	wanted  atomic.Int64  // that reached must get to
	ask     chan struct{} // wanted has changed
	reading atomic.Int64  // since when the stream is read, in Unix nanoseconds; 0: Next is to be called first
}

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
	w := &watcher{k: k, batches: make(chan store.Batch), done: make(chan struct{}), ask: make(chan struct{}, 1)}
	w.start, w.end = k.bounds(span)
	w.reached.Store(from - 1)
	closed, cancel := context.WithCancel(k.ctx)
	w.close = cancel
	go w.run(closed)
	return w, nil
}

func (w *watcher) Close() { w.close() }

func (w *watcher) Next(ctx context.Context) (store.Batch, error) {
	select {
	case <-w.done:
		return store.Batch{}, w.err
	default:
	}
	select {
	case batch := <-w.batches:
		return batch, nil
	case <-w.done:
		return store.Batch{}, w.err
	case <-ctx.Done():
		return store.Batch{}, ctx.Err()
	}
}

// Progress asks etcd for its revision. The stream gets there by itself or is asked for a
// notification.
func (w *watcher) Progress(ctx context.Context) (int64, error) {
	select {
	case <-w.done:
		return 0, w.err
	default:
	}
	reached := w.reached.Load()
	revision, err := w.k.revision(ctx)
	switch {
	case err != nil:
		return 0, err
	case revision < reached:
		return 0, store.Errorf(store.ErrUnavailable, "etcd at %s has revision %d, but had %d before: it was restored, so restart this gateway", w.k.servers, revision, reached)
	}
	for old := w.wanted.Load(); old < revision && !w.wanted.CompareAndSwap(old, revision); {
		old = w.wanted.Load()
	}
	select {
	case w.ask <- struct{}{}:
	default:
	}
	return revision, nil
}

// run reads one stream after another until the watcher is closed or its changes were
// compacted.
func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	defer w.close()
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			p.Log(w.k.logger, "watching the store in etcd")
			w.err = p
		}
	}()
	lost := false
	for pause := time.Duration(0); ; pause = min(2*pause+10*time.Millisecond, maxPause) {
		before := w.reached.Load()
		err := w.stream(ctx, func() {
			if lost {
				w.k.logger.Info("watching the store in etcd again")
			}
			lost = false
		})
		switch {
		case ctx.Err() != nil:
			w.err = store.ErrClosed
			return
		case errors.Is(err, store.ErrCompacted), errors.Is(err, rpctypes.ErrPermissionDenied):
			w.err = w.k.explain(err)
			return
		}
		if !lost {
			w.k.logger.Warn("lost the watch of the store in etcd; trying again", "error", err)
		}
		lost = true
		if w.reached.Load() > before {
			pause = 0
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// stream watches from the revision that was reached until the stream fails. It calls
// created when etcd has confirmed the watch.
func (w *watcher) stream(ctx context.Context, created func()) error {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer cancel(nil)
	unconfirmed := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer unconfirmed.Stop()
	stream, err := w.k.watches.Watch(ctx, grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxReceive))
	if err != nil {
		return failure(ctx, err)
	}
	err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(w.start), RangeEnd: []byte(w.end), StartRevision: w.reached.Load() + 1, ProgressNotify: true, Fragment: true,
	}}})
	if err != nil {
		return failure(ctx, err)
	}
	var pending []store.Event // of a transaction that the stream has begun
	for {
		w.reading.Store(time.Now().UnixNano())
		resp, err := stream.Recv()
		w.reading.Store(0)
		switch {
		case err != nil:
			return failure(ctx, err)
		case resp.CompactRevision != 0:
			return store.ErrCompacted
		case resp.Canceled:
			return rpctypes.Error(errors.New(resp.CancelReason))
		case resp.Created:
			unconfirmed.Stop()
			created()
			// Not before: etcd may send progress before changes that wait for the
			// confirmation.
			go w.request(ctx, cancel, stream)
			continue
		}
		for _, e := range resp.Events {
			pending = append(pending, w.k.event(e))
		}
		var batch store.Batch
		batch, pending = complete(resp, pending)
		if batch.Revision <= w.reached.Load() {
			continue
		}
		batch.Events = slices.DeleteFunc(batch.Events, func(e store.Event) bool { return hidden(e.Item.Key) })
		select {
		case w.batches <- batch:
			w.reached.Store(batch.Revision)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// failure returns the reason why a stream failed.
func failure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return rpctypes.Error(err)
}

// complete returns the batch of the complete transactions among the events received, and
// the other events. The last transaction of a fragment may go on in the next one.
func complete(resp *pb.WatchResponse, events []store.Event) (store.Batch, []store.Event) {
	if len(events) == 0 { // a notification of progress
		return store.Batch{Revision: resp.Header.Revision}, nil
	}
	last := events[len(events)-1].Item.ModRevision
	if !resp.Fragment {
		return store.Batch{Revision: last, Events: events}, nil
	}
	for i, e := range events {
		if e.Item.ModRevision == last {
			if i == 0 {
				return store.Batch{}, events
			}
			return store.Batch{Revision: events[i-1].Item.ModRevision, Events: events[:i:i]}, append([]store.Event{}, events[i:]...)
		}
	}
	return store.Batch{}, events
}

// request requests progress of a stream whenever it is wanted, and ends a stream that
// delivers nothing.
func (w *watcher) request(ctx context.Context, end context.CancelCauseFunc, stream pb.Watch_WatchClient) {
	for {
		for begin := time.Now(); w.reached.Load() < w.wanted.Load(); {
			if since := w.reading.Load(); since != 0 && time.Since(begin) > silence && time.Since(time.Unix(0, since)) > silence {
				end(errSilent)
			}
			err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
			if err != nil {
				return // the reader gets the reason
			}
			select {
			case <-time.After(askPause):
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-w.ask:
		case <-ctx.Done():
			return
		}
	}
}

// event returns the event of the store for one of etcd.
func (k *kv) event(e *mvccpb.Event) store.Event {
	item := k.item(e.Kv)
	if e.Type == mvccpb.DELETE {
		return store.Event{Item: store.Item{Key: item.Key, ModRevision: item.ModRevision}, Deleted: true}
	}
	return store.Event{Item: item}
}
