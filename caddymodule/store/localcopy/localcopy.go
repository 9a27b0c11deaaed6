// Package localcopy is a KV that keeps a copy of a shared one in a file, and starts from it
// while the shared one cannot be reached.
//
// Then the copy answers reads, and a transaction that only compares. All else fails with
// ErrUnavailable. Once the shared KV is open, it answers all calls, and the watcher makes the
// store read everything anew.
package localcopy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
)

const (
	openPause = 2 * time.Second // between attempts to open the shared KV
	// openTime is how long a start with a copy waits for the shared KV.
	openTime = 10 * time.Second
	// maxAge is for how long a copy can be used. By then, the cluster has forgotten an edge
	// without contact.
	maxAge = time.Hour
	// copyPause is the pause between two copies, to which copyShare times the time that the
	// last one took is added.
	copyPause = 10 * time.Second
	copyShare = 30
)

// Options are the parameters of Open.
type Options struct {
	Open   func(context.Context) (store.KV, error) // opens the shared KV
	Path   string                                  // of the copy, different for each shared KV
	Pause  time.Duration                           // between two copies; 0 means 10 s
	Logger *slog.Logger
}

// kv implements store.KV.
type kv struct {
	Options
	ctx   context.Context
	close context.CancelFunc
	work  sync.WaitGroup

	copy    store.KV // nil: not used
	opened  chan struct{}
	shared  store.KV    // set before opened is closed
	began   atomic.Bool // the store has its first watcher
	changed atomic.Bool // since the last copy
}

// Open opens the shared KV. If that fails with ErrUnavailable, or takes 10 s, and there is a
// copy of the last hour, it opens the copy, and the shared KV in the background.
func Open(ctx context.Context, o Options) (store.KV, error) {
	o.Pause = cmp.Or(o.Pause, copyPause)
	if _, err := os.Stat(o.Path); err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTime)
		defer cancel()
	}
	k := &kv{Options: o, opened: make(chan struct{})}
	k.ctx, k.close = context.WithCancel(context.Background())
	var err error
	if k.shared, err = o.Open(ctx); err == nil {
		close(k.opened)
	} else if err = k.openCopy(err); err != nil {
		k.close()
		return nil, err
	} else {
		k.work.Go(k.open)
	}
	k.changed.Store(true)
	k.work.Go(k.keep)
	return k, nil
}

// openCopy opens the copy after a failure to open the shared KV, which it returns if the copy
// cannot be used.
func (k *kv) openCopy(failure error) error {
	if !errors.Is(failure, store.ErrUnavailable) {
		return failure
	}
	info, err := os.Stat(k.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failure
	case err == nil && time.Since(info.ModTime()) > maxAge:
		return fmt.Errorf("%w (the copy of the store in %s is from %s, which is too long ago)", failure, k.Path, info.ModTime().UTC().Format(time.RFC3339))
	case err == nil:
		k.copy, err = store.OpenBolt(k.Path, store.BoltOptions{Logger: k.Logger})
	}
	if err == nil { // opening it has changed its time
		err = os.Chtimes(k.Path, info.ModTime(), info.ModTime())
	}
	if err != nil {
		return fmt.Errorf("%w (and its copy cannot be used: %w)", failure, err)
	}
	k.Logger.Error("cannot reach the store; starting from the copy of it", "error", failure, "copy", k.Path, "from", info.ModTime().UTC())
	return nil
}

// open opens the shared KV, however long that takes.
func (k *kv) open() {
	last := ""
	for k.ctx.Err() == nil {
		var shared store.KV
		err := panics.Do(k.Logger, "opening the store", func() (err error) {
			shared, err = k.Options.Open(k.ctx)
			return err
		})
		if err == nil {
			k.shared = shared
			close(k.opened)
			k.Logger.Info("reached the store")
			return
		}
		if k.ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			k.Logger.Warn("cannot reach the store yet", "error", err)
		}
		k.pause(openPause)
	}
}

func (k *kv) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-k.ctx.Done():
	}
}

// keep keeps the copy up to date.
func (k *kv) keep() {
	select {
	case <-k.opened:
	case <-k.ctx.Done():
	}
	last := time.Now()
	for {
		k.pause(k.Pause)
		if k.copy != nil && k.ctx.Err() == nil { // it is no longer read
			_ = k.copy.Close() // or Close has done that
		}
		begun := time.Now()
		switch {
		case k.ctx.Err() != nil:
			return
		case !k.changed.Swap(false) && begun.Sub(last) < maxAge/2:
			continue
		}
		if err := panics.Do(k.Logger, "copying the store", k.update); err != nil {
			k.changed.Store(true)
			if k.ctx.Err() == nil {
				k.Logger.Warn("failed to copy the store to the disk", "error", err, "copy", k.Path)
			}
			continue
		}
		last = time.Now()
		k.pause(copyShare * last.Sub(begun))
	}
}

// update writes a new copy.
func (k *kv) update() error {
	next := k.Path + ".new"
	err := os.Remove(next) // of a process that was killed
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = store.CopyView(k.ctx, k.shared, next)
	}
	if err == nil {
		err = os.Rename(next, k.Path)
	}
	return err
}

// now returns the shared KV, or the copy while that is not open.
func (k *kv) now() (kv store.KV, isCopy bool) {
	select {
	case <-k.opened:
		return k.shared, false
	default:
		return k.copy, true
	}
}

var errAway = fmt.Errorf("%w: it has not been reached since the start of this gateway", store.ErrUnavailable)

func (k *kv) Get(ctx context.Context, key string) (store.Item, error) {
	kv, _ := k.now()
	return kv.Get(ctx, key)
}

func (k *kv) Each(ctx context.Context, span store.Span, f func(store.Item) error) (int64, error) {
	kv, _ := k.now()
	return kv.Each(ctx, span, f)
}

func (k *kv) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	kv, isCopy := k.now()
	if isCopy && len(t.Then) > 0 {
		return store.TxnResult{}, errAway
	}
	return kv.Txn(ctx, t)
}

// Lease implements store.Leaser.
func (k *kv) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	kv, isCopy := k.now()
	if isCopy {
		return nil, errAway
	}
	return kv.(store.Leaser).Lease(ctx, ttl)
}

func (k *kv) Backup(ctx context.Context, w io.Writer) error {
	kv, isCopy := k.now()
	if isCopy {
		return errAway
	}
	return kv.Backup(ctx, w)
}

// Compact implements store.Compacter.
func (k *kv) Compact(ctx context.Context, revision int64) error {
	kv, isCopy := k.now()
	if isCopy {
		return errAway
	}
	if c, ok := kv.(store.Compacter); ok {
		return c.Compact(ctx, revision)
	}
	return nil
}

// Watch returns a watcher that fails once the shared KV is open, if the store has read the
// copy.
func (k *kv) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	if k.copy != nil && !k.began.Swap(true) {
		w := &waiting{k: k}
		w.ctx, w.close = context.WithCancel(k.ctx)
		return w, nil
	}
	kv, isCopy := k.now()
	if isCopy {
		return nil, errAway
	}
	w, err := kv.Watch(ctx, span, from)
	if err != nil {
		return nil, err
	}
	return &watcher{w, k}, nil
}

// Close implements store.KV.
func (k *kv) Close() error {
	if k.ctx.Err() != nil {
		return store.ErrClosed
	}
	k.close()
	k.work.Wait()
	var err error
	if _, isCopy := k.now(); !isCopy {
		err = k.shared.Close()
	}
	if k.copy != nil {
		_ = k.copy.Close() // or keep has done that
	}
	return err
}

// watcher notes that there are changes.
type watcher struct {
	store.Watcher
	k *kv
}

func (w *watcher) Next(ctx context.Context) (store.Batch, error) {
	batch, err := w.Watcher.Next(ctx)
	if err != nil || len(batch.Events) > 0 {
		w.k.changed.Store(true)
	}
	return batch, err
}

// waiting is a watcher of the copy.
type waiting struct {
	k     *kv
	ctx   context.Context
	close context.CancelFunc
}

func (w *waiting) Next(ctx context.Context) (store.Batch, error) {
	select {
	case <-w.k.opened:
		return store.Batch{}, store.ErrCompacted
	case <-w.ctx.Done():
		return store.Batch{}, store.ErrClosed
	case <-ctx.Done():
		return store.Batch{}, ctx.Err()
	}
}

func (w *waiting) Progress(context.Context) (int64, error) {
	if _, isCopy := w.k.now(); isCopy {
		return 0, errAway
	}
	return 0, store.ErrCompacted
}

func (w *waiting) Close() { w.close() }

// Interface guards.
var (
	_ store.KV        = (*kv)(nil)
	_ store.Compacter = (*kv)(nil)
)
