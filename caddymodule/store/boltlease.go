package store

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	bolt "go.etcd.io/bbolt"
)

// retryEnd is the pause before another attempt to end a lease.
const retryEnd = time.Second

// boltLease is a lease and its handle. The file holds only the ttl. The deadline is in
// memory, so that KeepAlive needs no write.
type boltLease struct {
	b   *boltKV
	id  LeaseID
	ttl time.Duration
	// Guarded by b.mu.
	deadline time.Time
	timer    *time.Timer // ends the lease
}

func (b *boltKV) Lease(ctx context.Context, ttl time.Duration) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ttl <= 0 {
		return nil, Errorf(ErrInvalid, "a lease needs a positive duration, not %v", ttl)
	}
	l := &boltLease{b: b, ttl: ttl}
	_, err := b.write(func(w *boltWrite) error {
		for l.id == 0 || b.leases[l.id] != nil {
			l.id = LeaseID(rand.Int64())
		}
		w.dirty = true
		w.after = l.begin
		return w.tx.Bucket(bucketLeases).Put(number(int64(l.id)), number(int64(ttl)))
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// begin starts the lease's timer. The caller holds the lock.
func (l *boltLease) begin() {
	l.deadline = time.Now().Add(l.ttl)
	l.timer = time.AfterFunc(l.ttl, l.expire)
	l.b.leases[l.id] = l
}

// loadLeases reads the leases without starting their timers.
func (b *boltKV) loadLeases(tx *bolt.Tx) error {
	return tx.Bucket(bucketLeases).ForEach(func(k, v []byte) error {
		if len(k) != 8 || len(v) != 8 {
			return Errorf(ErrSchema, "the store %s has a damaged lease: restore a backup", b.path)
		}
		id, ttl := LeaseID(binary.BigEndian.Uint64(k)), time.Duration(binary.BigEndian.Uint64(v))
		b.leases[id] = &boltLease{b: b, id: id, ttl: ttl}
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
		return Errorf(ErrNotFound, "lease %d not found: it has ended", l.id)
	}
	l.deadline = now.Add(l.ttl)
	l.timer.Reset(l.ttl)
	return nil
}

func (l *boltLease) Revoke(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := l.b.write(l.end)
	return err
}

// expire ends the lease unless it was kept alive meanwhile.
func (l *boltLease) expire() {
	_, err := l.b.write(func(w *boltWrite) error {
		if left := time.Until(l.deadline); left > 0 {
			l.timer.Reset(left)
			return nil
		}
		return l.end(w)
	})
	if err != nil && !errors.Is(err, ErrClosed) {
		l.timer.Reset(retryEnd)
	}
}

// end deletes the lease and its items, if it still exists.
func (l *boltLease) end(w *boltWrite) error {
	if l.b.leases[l.id] == nil {
		return nil
	}
	w.dirty = true
	w.after = func() {
		l.timer.Stop()
		delete(l.b.leases, l.id)
	}
	var items []Item
	err := eachItem(w.tx, Span{}, func(item Item) error {
		if item.Lease == l.id {
			items = append(items, item)
		}
		return nil
	})
	for _, item := range items {
		err = errors.Join(err, w.remove(item))
	}
	return errors.Join(err, w.tx.Bucket(bucketLeases).Delete(number(int64(l.id))))
}
