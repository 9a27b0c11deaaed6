package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// saveInterval is how long the times of last use are saved up in memory.
const saveInterval = 5 * time.Second

// Touch notes that a key was just used. It does no I/O: the times are written
// together every few seconds and by Close. A killed process loses the last
// ones.
func (s *Store) Touch(k *LiveKey) {
	if k.used(s.now()) {
		s.queue(k)
	}
}

// saveRest is how long after one write of it the use of a session or of a
// token is not written again.
const saveRest = time.Minute

// noted is what has a time of last use that is saved up.
type noted interface {
	queued() *atomic.Bool // it waits in Store.unsaved
	last() (path string, at time.Time)
	saving() // what last says now will be written
}

// use is when a session or a token was used, or a connector was seen, last, in whole seconds or less.
// It outlives changes of the record.
type use struct {
	path    string
	at      atomic.Pointer[time.Time] // what it points to never changes; nil: never
	saved   atomic.Int64              // Unix milliseconds that the KV has, or is about to get
	unsaved atomic.Bool
}

// used moves the time of last use forward, never back, and allocates only when
// it does. It reports whether it did.
func (u *use) used(at time.Time) bool {
	for {
		old := u.at.Load()
		if old != nil && at.Sub(*old) < time.Second {
			return false
		}
		next := at.UTC().Truncate(time.Millisecond)
		if u.at.CompareAndSwap(old, &next) {
			return true
		}
	}
}

func (u *use) queued() *atomic.Bool { return &u.unsaved }

func (u *use) last() (path string, at time.Time) { return u.path, *u.at.Load() }

func (u *use) saving() { u.saved.Store(u.at.Load().UnixMilli()) }

// note is Touch for sessions, tokens and connectors.
func (s *Store) note(u *use) {
	now := s.now()
	if u.used(now) && now.Sub(time.UnixMilli(u.saved.Load())) >= saveRest {
		s.queue(u)
	}
}

// queue takes the lock only for the first use since the last write.
func (s *Store) queue(n noted) {
	unsaved := n.queued()
	if unsaved.Load() || !unsaved.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock()
	s.unsaved = append(s.unsaved, n)
	s.mu.Unlock()
}

func (s *Store) saveUses(ctx context.Context) {
	ticker := time.NewTicker(saveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return // Close saves the rest
		case <-ticker.C:
			if err := s.flush(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("saving what was used when", "error", err)
			}
		}
	}
}

// flush writes the saved-up times, and keeps for the next time what it could
// not write. Two processes may write the same one; the view takes
// the later one.
func (s *Store) flush(ctx context.Context) error {
	s.mu.Lock()
	all := s.unsaved
	s.unsaved = nil
	s.mu.Unlock()
	for _, n := range all {
		n.saving()
		n.queued().Store(false) // before reading the time: a later use queues again
	}
	for len(all) > 0 {
		chunk := all[:min(len(all), MaxTxnOps)]
		if err := s.saveChunk(ctx, chunk); err != nil {
			for _, n := range all {
				s.queue(n)
			}
			return fmt.Errorf("saving what was used when: %w", err)
		}
		all = all[len(chunk):]
	}
	return nil
}

func (s *Store) saveChunk(ctx context.Context, chunk []noted) error {
	var t Txn
	for _, n := range chunk {
		path, at := n.last()
		op, err := encode(path, lastUsedRecord{version{recordVersion}, at})
		if err != nil {
			return err
		}
		t.Then = append(t.Then, op)
	}
	_, err := s.kv.Txn(ctx, t)
	return err
}
