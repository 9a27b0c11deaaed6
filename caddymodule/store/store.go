package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/subscribe"
)

// Options adjusts New. The zero value is right for a gateway.
type Options struct {
	Logger *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // of the times in records; nil: time.Now
}

// Store gives the records of a KV their meaning. Its methods are safe for
// concurrent use.
type Store struct {
	kv   KV
	log  *slog.Logger
	now  func() time.Time
	view atomic.Pointer[view]

	subscribers subscribe.List[Change]

	mu       sync.Mutex
	applied  int64         // revision of the view, once its callbacks have run
	progress chan struct{} // closed and replaced when applied changes or closed is set
	closed   bool
	unsaved  []*use // to be written

	stop    context.CancelFunc // of the goroutines
	workers sync.WaitGroup
}

// New reads everything in kv into memory, creates the default account if there
// is none, and takes kv over: Close closes it. When New fails, kv is still the
// caller's.
func New(kv KV, o Options) (*Store, error) {
	s := &Store{kv: kv, log: o.Logger, now: o.Now, progress: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.view.Store(new(view))
	ctx, stop := context.WithCancel(context.Background())
	if err := s.createDefaultAccount(ctx); err != nil {
		stop()
		return nil, err
	}
	watcher, err := s.load(ctx, true)
	if err != nil {
		stop()
		return nil, err
	}
	s.stop = stop
	s.workers.Go(func() { s.follow(ctx, watcher) })
	s.workers.Go(func() { s.repeat(ctx, saveInterval, "failed to save times of last use", s.flush) })
	s.workers.Go(func() { s.repeat(ctx, sweepInterval, "failed to remove what has ended from the store", s.sweep) })
	return s, nil
}

// repeat calls f now and after each interval, until the context ends.
func (s *Store) repeat(ctx context.Context, interval time.Duration, failure string, f func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn(failure, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (s *Store) createDefaultAccount(ctx context.Context) error {
	r := &accountRecord{Account: Account{ID: DefaultAccount, Name: DefaultAccount, CreatedAt: s.time()}}
	op, err := encode(accountKind.path("", r.ID), r)
	if err != nil {
		return err
	}
	// No retry: if the compare does not hold, there is one.
	_, err = s.kv.Txn(ctx, Txn{If: []Compare{{Key: op.Key}}, Then: []Op{op}})
	if err != nil {
		return fmt.Errorf("creating the default account: %w", err)
	}
	return nil
}

// Close writes the uses that Touch has saved up and closes the KV. Reads keep
// giving the last view, for requests that still run; writes fail with
// ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.advance(s.applied)
	s.mu.Unlock()
	s.stop()
	s.workers.Wait()
	return errors.Join(s.flush(context.Background()), s.kv.Close())
}

// time is now as records have it: UTC, in whole milliseconds.
func (s *Store) time() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// Subscribe has f called for each change of a record that Change has a kind for,
// after reads show it and before its write returns. f must return soon and not write
// to the store. stop ends it, but for a call that is running.
func (s *Store) Subscribe(f func(Change)) (stop func()) { return s.subscribers.Add(f) }
