package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	bolt "go.etcd.io/bbolt"
)

// boltLease is a lease and the handle on it. The file knows its ttl only; the
// deadline is in memory, so that keeping a lease alive costs no write, and
// after a restart each lease has its full ttl again, as etcd's leases have
// when the leader changes.
type boltLease struct {
	b        *boltKV
	id       LeaseID
	ttl      time.Duration
	deadline time.Time // guarded by b.mu
}

func (b *boltKV) Lease(ctx context.Context, ttl time.Duration) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ttl <= 0 {
		return nil, fail(ErrInvalid, "a lease needs a positive duration, not %v", ttl)
	}
	l := &boltLease{b: b, ttl: ttl}
	_, err := b.write(func(w *boltWrite) error {
		for l.id == 0 || b.leases[l.id] != nil {
			l.id = LeaseID(rand.Int64())
		}
		w.dirty = true
		w.after = func() {
			l.deadline = time.Now().Add(ttl)
			b.leases[l.id] = l
		}
		if err := w.tx.Bucket(bucketLeases).Put(number(int64(l.id)), number(int64(ttl))); err != nil {
			return fmt.Errorf("writing to the store: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case b.wake <- struct{}{}:
	default: // the goroutine will look anyway
	}
	return l, nil
}

func (b *boltKV) loadLeases(tx *bolt.Tx, now time.Time) error {
	return tx.Bucket(bucketLeases).ForEach(func(k, v []byte) error {
		if len(k) != 8 || len(v) != 8 {
			return fail(ErrSchema, "the store %s has a damaged lease: restore a copy", b.path)
		}
		id, ttl := LeaseID(binary.BigEndian.Uint64(k)), time.Duration(binary.BigEndian.Uint64(v))
		b.leases[id] = &boltLease{b: b, id: id, ttl: ttl, deadline: now.Add(ttl)}
		return nil
	})
}

func (l *boltLease) ID() LeaseID { return l.id }

func (l *boltLease) KeepAlive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	now := time.Now()
	switch {
	case l.b.closed:
		return ErrClosed
	case l.b.leases[l.id] == nil || !now.Before(l.deadline):
		return fail(ErrNotFound, "there is no lease %d: it has ended", l.id)
	}
	l.deadline = now.Add(l.ttl)
	return nil
}

func (l *boltLease) Revoke(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.b.endLease(l.id, func() bool { return true })
}

// endLease deletes the lease and its items, if it still exists and due, which
// is called under the lock, says so.
func (b *boltKV) endLease(id LeaseID, due func() bool) error {
	_, err := b.write(func(w *boltWrite) error {
		if b.leases[id] == nil || !due() {
			return nil
		}
		w.dirty = true
		w.after = func() { delete(b.leases, id) }
		if err := w.removeLeased(id); err != nil {
			return err
		}
		if err := w.tx.Bucket(bucketLeases).Delete(number(int64(id))); err != nil {
			return fmt.Errorf("writing to the store: %w", err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ending a lease: %w", err)
	}
	return nil
}

func (w *boltWrite) removeLeased(id LeaseID) error {
	// Removing moves the cursor, so the keys are gathered first.
	var keys []string
	prefix := number(int64(id))
	c := w.tx.Bucket(bucketLeased).Cursor()
	for k, _ := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		keys = append(keys, string(k[len(prefix):]))
	}
	for _, key := range keys {
		item, err := w.get(key)
		if err != nil {
			return err
		}
		if err := w.remove(item); err != nil {
			return err
		}
	}
	return nil
}

// endLeases waits for the next deadline and ends what is due, until Close.
func (b *boltKV) endLeases() {
	defer close(b.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(b.endDue())
		select {
		case <-b.stop:
			return
		case <-b.wake:
		case <-timer.C:
		}
	}
}

// endDue ends the leases that are due and returns the time to the next one.
func (b *boltKV) endDue() time.Duration {
	now, next := time.Now(), time.Hour
	var due []*boltLease
	b.mu.Lock()
	for _, l := range b.leases {
		if left := l.deadline.Sub(now); left <= 0 {
			due = append(due, l)
		} else {
			next = min(next, left)
		}
	}
	b.mu.Unlock()
	for _, l := range due {
		err := b.endLease(l.id, func() bool { return !time.Now().Before(l.deadline) })
		if err != nil {
			b.log.Error("ending a lease", "lease", int64(l.id), "error", err)
			next = min(next, time.Second) // try again, but not at once
		}
	}
	return next
}
