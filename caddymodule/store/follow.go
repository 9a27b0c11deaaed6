package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/subscribe"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

// retryWatch is the pause before a failed watch is retried.
const retryWatch = time.Second

// loadFirst is load at the start, which reads each page that has a record.
func (s *Store) loadFirst(ctx context.Context) (w Watcher, err error) {
	defer catchDamage(func(damage error) {
		err = Errorf(ErrSchema, "the store is damaged: %v; restore a backup", damage)
	})()
	return s.load(ctx, true)
}

// load updates the view to the current state of the KV and returns a watcher of later
// changes. The first time, an unreadable record is an error.
func (s *Store) load(ctx context.Context, first bool) (Watcher, error) {
	v := s.view.Load()
	d := v.draft(s.time())
	d.first = first
	d.orphans, d.unreadable = table[string, int64]{}, table[string, int64]{}
	var confirmed int64
	// Apply each record as a change. After the first load, most of these change nothing.
	revision, err := s.shared.Each(ctx, watched, func(item Item) error {
		if item.Key == markRestoring {
			return Errorf(ErrSchema, "a backup is being restored into this store, or that was interrupted: "+
				"wait until it is complete, or restore the backup again")
		}
		if item.Key == markConfirmed {
			confirmed = item.ModRevision
		}
		err := d.apply(Event{Item: item})
		if err != nil && !first {
			s.ignore(err)
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the store: %w", err)
	}
	for _, kind := range kinds {
		kind.dropMissing(d, &v.records)
	}
	watcher, err := s.shared.Watch(ctx, watched, revision+1)
	if err != nil {
		return nil, fmt.Errorf("watching the store: %w", err)
	}
	s.mu.Lock()
	s.watcher = watcher
	s.mu.Unlock()
	s.publish(d, revision)
	s.cluster.Reached(confirmed)
	return watcher, nil
}

// ignore reports an unreadable record, which is left out of the view.
func (s *Store) ignore(err error) {
	s.log.Error("failed to read a record of the store: it is ignored", "error", err)
}

var errBroken = Errorf(ErrUnavailable,
	"this gateway is rereading its store after an internal error: try again in a moment")

// run follows the KV, and expires keys, until the context ends. Authentication depends on both:
// after a panic of either, the store refuses everything until it has been read again.
func (s *Store) run(ctx context.Context, watcher Watcher) {
	for ctx.Err() == nil {
		var parts sync.WaitGroup
		running, stop := context.WithCancel(ctx)
		part := func(doing string, f func()) {
			parts.Go(func() {
				defer stop()
				if panics.Do(s.log, doing, func() error { f(); return nil }) != nil {
					s.onPanic()
				}
			})
		}
		part("following the store", func() { s.follow(running, watcher) })
		part("expiring keys", func() { s.expire(running) })
		parts.Wait()
		s.mu.Lock()
		s.watcher.Close()
		s.mu.Unlock()
		watcher = nil // read the state again, starting from the last view whose callbacks all returned
		s.view.Store(s.notified)
	}
}

// onPanic makes the store refuse everything until onRead.
func (s *Store) onPanic() {
	s.broken.Store(true)
	s.CutRequests()
}

// onRead undoes onPanic after the state was read.
func (s *Store) onRead() {
	if s.broken.Swap(false) {
		s.log.Info("read the store again; accepting requests")
	}
}

// follow applies the KV's events to the view until the context ends. If there is no watcher, it
// first reads the state.
func (s *Store) follow(ctx context.Context, watcher Watcher) {
	if watcher == nil {
		watcher = s.resume(ctx, errBroken)
	}
	for watcher != nil {
		batch, err := watcher.Next(ctx)
		if err == nil {
			s.apply(batch)
			continue
		}
		watcher.Close()
		watcher = s.resume(ctx, err)
	}
}

// resume reads the whole state again and returns a new watcher after the old one has
// failed. It returns nil if the context has ended.
func (s *Store) resume(ctx context.Context, cause error) Watcher {
	for ctx.Err() == nil {
		if !errors.Is(cause, ErrCompacted) {
			s.log.Warn("failed to watch the store", "error", cause)
			if wait.For(ctx, retryWatch) != nil {
				return nil
			}
		}
		watcher, err := s.load(ctx, false)
		if err == nil {
			s.onRead()
			return watcher
		}
		cause = err
	}
	return nil
}

// apply applies a batch to the view, all of it at once.
func (s *Store) apply(batch Batch) {
	d := s.view.Load().draft(s.time())
	for _, e := range batch.Events {
		if err := d.apply(e); err != nil {
			s.ignore(err)
		}
	}
	s.publish(d, batch.Revision)
	for _, e := range slices.Backward(batch.Events) {
		if e.Item.Key == markConfirmed {
			s.cluster.Reached(e.Item.ModRevision)
			break
		}
	}
}

// publish is the only function that changes the view. It ends requests, calls the
// subscribers, and wakes waiting writes.
func (s *Store) publish(d *draft, revision int64) {
	d.bindKeys()
	// Update the LiveKeys first, so that no request finds a revoked key valid in the
	// new view. It is harmless that the old view shows them slightly earlier.
	for _, r := range d.updates {
		r.live.record.Store(r)
	}
	s.view.Store(d.view(revision))
	now := s.now()
	for _, r := range d.updates {
		s.review(r.live, now)
	}
	subscribers := s.subscribers.Now()
	for _, change := range d.changes {
		s.report(subscribers, change)
	}
	s.notified = s.view.Load()
	s.applied.Store(revision)
	s.progress.Now()
}

// report calls the subscribers with a change, and recovers from their panics.
func (s *Store) report(subscribers subscribe.Subscribers[Change], change Change) {
	for _, f := range subscribers {
		func() {
			defer panics.Recover(s.log, "reporting a change of the store")
			(*f)(change)
		}()
	}
}

// Reach waits until the view has reached revision and its callbacks have returned.
func (s *Store) Reach(ctx context.Context, revision int64) error {
	for {
		progress := s.progress.Next()
		switch {
		case s.applied.Load() >= revision:
			return nil
		case s.closed.Load():
			return ErrClosed
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("%w: waiting for the written change to take effect: %w", ErrUnavailable, ctx.Err())
		}
	}
}

// CatchUp waits until the view shows all earlier writes, including those of other processes.
func (s *Store) CatchUp(ctx context.Context) error {
	ctx, cancel := s.withSharedTimeout(ctx)
	defer cancel()
	for {
		progress := s.progress.Next()
		s.mu.Lock()
		watcher := s.watcher
		s.mu.Unlock()
		revision, err := watcher.Progress(ctx)
		switch {
		case err == nil:
			return s.Reach(ctx, revision)
		case s.closed.Load():
			return ErrClosed
		case errors.Is(err, ErrUnavailable):
			return err
		}
		// Follow replaces a watcher that has failed. The failure may also be temporary.
		select {
		case <-progress:
		case <-time.After(retryWatch):
		case <-ctx.Done():
			return fmt.Errorf("%w: waiting for the changes of other processes: %w", ErrUnavailable, ctx.Err())
		}
	}
}
