package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// retryWatch is the pause before a failed watch is retried.
const retryWatch = time.Second

// load updates the view to the current state of the KV and returns a watcher of later
// changes. If strict is set, an unreadable record is an error.
func (s *Store) load(ctx context.Context, strict bool) (Watcher, error) {
	snap, err := s.kv.Range(ctx, Span{})
	if err != nil {
		return nil, fmt.Errorf("reading the store: %w", err)
	}
	watcher, err := s.kv.Watch(ctx, Span{}, snap.Revision+1)
	if err != nil {
		return nil, fmt.Errorf("watching the store: %w", err)
	}
	// Express the state as changes: deletions of missing records, and all records.
	// After the first load, most of these change nothing.
	batch := Batch{Revision: snap.Revision, Events: s.view.Load().missing(snap.Items)}
	for _, item := range snap.Items {
		batch.Events = append(batch.Events, Event{Item: item})
	}
	if err := s.apply(batch); err != nil && strict {
		watcher.Close()
		return nil, err
	}
	return watcher, nil
}

// follow applies the KV's events to the view until the context ends.
func (s *Store) follow(ctx context.Context, watcher Watcher) {
	for {
		batch, err := watcher.Next(ctx)
		if err == nil {
			// apply has logged the error and left out the record.
			_ = s.apply(batch)
			continue
		}
		watcher.Close()
		if watcher = s.resume(ctx, err); watcher == nil {
			return
		}
	}
}

// resume reads the whole state again and returns a new watcher after the old one has
// failed. It returns nil if the context has ended.
func (s *Store) resume(ctx context.Context, cause error) Watcher {
	for ctx.Err() == nil {
		if !errors.Is(cause, ErrCompacted) {
			s.log.Warn("failed to watch the store", "error", cause)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(retryWatch):
			}
		}
		watcher, err := s.load(ctx, false)
		if err == nil {
			return watcher
		}
		cause = err
	}
	return nil
}

// apply is the only function that changes the view. It publishes the changes of the
// batch at once, revokes keys, calls the subscribers, and wakes waiting writes. It
// returns the errors of unreadable records.
func (s *Store) apply(batch Batch) error {
	var errs []error
	d := s.view.Load().draft(s.time())
	for _, e := range batch.Events {
		if err := d.apply(e); err != nil {
			s.log.Error("failed to read a record of the store: it is ignored", "error", err)
			errs = append(errs, err)
		}
	}
	// Update the LiveKeys first, so that no request finds a revoked key valid in the
	// new view. It is harmless that the old view shows them slightly earlier.
	for _, r := range d.updates {
		r.live.record.Store(r)
	}
	s.view.Store(d.view(batch.Revision))
	for _, r := range d.updates {
		if r.RevokedAt != nil {
			r.live.revoke()
		}
	}
	subscribers := s.subscribers.Now()
	for _, change := range d.changes {
		subscribers.Call(change)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(batch.Revision)
	return errors.Join(errs...)
}

// advance sets the applied revision and wakes waiting writes. The caller holds s.mu.
func (s *Store) advance(revision int64) {
	s.applied = revision
	close(s.progress)
	s.progress = make(chan struct{})
}

// reach waits until the view has reached revision and its callbacks have returned.
func (s *Store) reach(ctx context.Context, revision int64) error {
	for {
		s.mu.Lock()
		applied, progress := s.applied, s.progress
		s.mu.Unlock()
		switch {
		case applied >= revision:
			return nil
		case s.closed.Load():
			return ErrClosed
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the written change to take effect: %w", ctx.Err())
		}
	}
}
