package store

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// saveInterval is how often times of use are saved.
	saveInterval = 5 * time.Second
	// touchIntervalAlone is the minimum time between two writes of the same time of use.
	touchIntervalAlone = time.Minute
	// touchIntervalShared is the same for gateways that share a store, where each write goes
	// to all of them.
	touchIntervalShared = time.Hour
)

// use is the time when a key, a session or a token was last used, or a connector was last
// seen. It outlives changes of the record.
type use struct {
	path    string
	millis  atomic.Int64 // Unix milliseconds; 0: never
	saved   atomic.Int64 // the same, as saved or being saved in the KV
	unsaved atomic.Bool  // queued in Store.unsaved
	tunnel  atomic.Pointer[LastTunnel]
}

// advance moves the time forward, never back, and reports whether it did.
func (u *use) advance(t time.Time) bool {
	ms := t.UnixMilli()
	for {
		old := u.millis.Load()
		if ms <= old {
			return false
		}
		if u.millis.CompareAndSwap(old, ms) {
			return true
		}
	}
}

// load is advance for a time read from the KV.
func (u *use) load(t time.Time) {
	if u.advance(t) {
		u.saved.Store(t.UnixMilli())
	}
}

// time returns the time of last use, which must not be 0.
func (u *use) time() time.Time { return time.UnixMilli(u.millis.Load()).UTC() }

// last returns the time of last use, or nil if never used.
func (u *use) last() *time.Time {
	if u == nil || u.millis.Load() == 0 {
		return nil
	}
	t := u.time()
	return &t
}

// Touch records that a key was just used. It does no I/O: times are written in batches, each
// at most once a minute, and by Close. A killed process loses the last ones.
func (s *Store) Touch(k *LiveKey) { s.touch(k.record.Load().use) }

// touch is Touch for the other kinds.
func (k *kind[R, P]) touch(s *Store, id string) {
	r, _ := k.byID(s.view.Load(), id)
	s.touch(r.head().use)
}

func (s *Store) touch(u *use) {
	if u != nil && u.advance(s.now()) {
		s.queue(u)
	}
}

// queue queues a time of use. It takes the lock only for the first use since the last
// write.
func (s *Store) queue(u *use) {
	if u.unsaved.Load() || !u.unsaved.CompareAndSwap(false, true) {
		return
	}
	s.mu.Lock()
	s.unsaved = append(s.unsaved, u)
	s.mu.Unlock()
}

// flushDue writes the queued times, but each at most once per s.touchInterval.
func (s *Store) flushDue(ctx context.Context) error { return s.flush(ctx, s.touchInterval) }

// flush writes the queued times that were last written at least interval ago, and queues them
// again after a failure. If two processes write the same one, views keep the later time.
func (s *Store) flush(ctx context.Context, interval time.Duration) error {
	before := s.now().Add(-interval).UnixMilli()
	s.mu.Lock()
	var all, later []*use
	for _, u := range s.unsaved {
		if u.saved.Load() <= before {
			all = append(all, u)
		} else {
			later = append(later, u)
		}
	}
	s.unsaved = later
	s.mu.Unlock()
	for _, u := range all {
		u.saved.Store(u.millis.Load())
		u.unsaved.Store(false) // before reading the time: a later use queues again
	}
	for chunk := range slices.Chunk(all, MaxTxnOps) {
		t := new(tx)
		for _, u := range chunk {
			t.put(u.path, &lastUsedRecord{LastUsedAt: u.time(), Tunnel: u.tunnel.Load()})
		}
		err := t.err
		if err == nil {
			_, err = s.shared.Txn(ctx, t.Txn)
		}
		if err != nil {
			for _, u := range all {
				s.queue(u)
			}
			return fmt.Errorf("saving times of last use: %w", err)
		}
	}
	return nil
}
