package certstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	// leaseTime is how long a lock lasts after its holder has died. When etcd elects a leader, the
	// time begins again: together, that takes less than 20 seconds.
	leaseTime  = 8 * time.Second
	renewPause = 2 * time.Second // between two renewals of a lease
)

// lock is a lock that this gateway has obtained. It may have lost it since.
type lock struct {
	item  store.Compare // true while this gateway has the lock
	lease store.Lease
	names string             // see fence
	stop  context.CancelFunc // of renew
}

// Lock waits for a lock and obtains it.
func (s *Storage) Lock(ctx context.Context, name string) error {
	for {
		after, err := s.tryLock(ctx, name)
		if err != nil || after == 0 {
			return err
		}
		if err := s.waitUnlocked(ctx, name, after); err != nil {
			return fmt.Errorf("waiting for the lock %s: %w", name, err)
		}
	}
}

// TryLock obtains a lock if it is free, and reports whether it was.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	lockedAt, err := s.tryLock(ctx, name)
	return lockedAt == 0 && err == nil, err
}

// tryLock obtains a lock if it is free. Otherwise it returns a revision at which another gateway had it.
func (s *Storage) tryLock(ctx context.Context, name string) (lockedAt int64, err error) {
	err = s.call(ctx, writeTimeout, func(ctx context.Context, kv store.KV) error {
		key := locksDir + name
		snapshot, err := store.Range(ctx, kv, only(key))
		if err != nil || len(snapshot.Items) > 0 {
			lockedAt = snapshot.Revision
			return err
		}
		value, err := encode(nil)
		if err != nil {
			return err
		}
		lease, err := kv.(store.Leaser).Lease(ctx, leaseTime)
		if err != nil {
			return err
		}
		result, err := kv.Txn(ctx, store.Txn{
			If:   []store.Compare{{Key: key}},
			Then: []store.Op{{Key: key, Value: value, Lease: lease.ID()}},
		})
		if err != nil || !result.Succeeded {
			lockedAt = snapshot.Revision
			// If this fails, the lease ends by itself.
			_ = revoke(ctx, lease)
			return err
		}
		return s.keep(ctx, name, &lock{
			item: store.Compare{Key: key, ModRevision: result.Revision}, lease: lease,
			names: "_" + certmagic.StorageKeys.Safe(name),
		})
	})
	if err != nil {
		return 0, fmt.Errorf("locking %s for all gateways: %w", name, err)
	}
	return lockedAt, nil
}

// only returns the span of one key.
func only(key string) store.Span { return store.Span{Start: key, End: key + "\x00"} }

func revoke(ctx context.Context, lease store.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	return lease.Revoke(ctx)
}

// waitUnlocked waits until a lock is released after revision.
func (s *Storage) waitUnlocked(ctx context.Context, name string, revision int64) error {
	w, err := s.kv.Watch(ctx, only(locksDir+name), revision+1)
	if errors.Is(err, store.ErrCompacted) {
		return nil
	} else if err != nil {
		return err
	}
	defer w.Close()
	for {
		batch, err := w.Next(ctx)
		switch {
		case errors.Is(err, store.ErrCompacted):
			return nil
		case err != nil:
			return err
		case slices.ContainsFunc(batch.Events, func(e store.Event) bool { return e.Deleted }):
			return nil
		}
	}
}

// keep adds a lock of this gateway and renews its lease. After Destruct it revokes the lease instead.
func (s *Storage) keep(ctx context.Context, name string, l *lock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return errors.Join(store.ErrClosed, revoke(ctx, l.lease))
	}
	if lost := s.locks[name]; lost != nil {
		lost.stop()
	}
	kept, stop := context.WithCancel(s.ctx)
	l.stop = stop
	s.locks[name] = l
	s.work.Go(func() { s.renew(kept, name, l.lease) })
	return nil
}

// renew keeps the lease of a lock alive.
func (s *Storage) renew(ctx context.Context, name string, lease store.Lease) {
	tick := time.NewTicker(renewPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := s.call(ctx, leaseTime, func(ctx context.Context, _ store.KV) error { return lease.KeepAlive(ctx) })
		if errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
			s.logger.Warn("lost a lock for certificates, because the store could not be reached for too long", "lock", name)
			return
		}
	}
}

// RenewLockLease makes sure that this gateway has a lock that it has obtained. If it has lost
// the lock, it waits for it again.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	l := s.locks[name]
	s.mu.Unlock()
	if l == nil {
		return s.errNotLocked(name)
	}
	err := s.call(ctx, writeTimeout, func(ctx context.Context, _ store.KV) error { return l.lease.KeepAlive(ctx) })
	if errors.Is(err, store.ErrNotFound) {
		return s.Lock(ctx, name)
	}
	return err
}

// Unlock releases a lock. A lock that was lost is released already.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	l := s.locks[name]
	delete(s.locks, name)
	s.mu.Unlock()
	if l == nil {
		return s.errNotLocked(name)
	}
	l.stop()
	err := s.call(ctx, writeTimeout, func(ctx context.Context, _ store.KV) error { return l.lease.Revoke(ctx) })
	if err != nil {
		return fmt.Errorf("releasing the lock %s, which ends by itself in %s: %w", name, leaseTime, err)
	}
	return nil
}

// errNotLocked returns the error for a lock that this gateway has not obtained. Destruct has
// released all locks.
func (s *Storage) errNotLocked(name string) error {
	if s.ctx.Err() != nil {
		return nil
	}
	return store.Errorf(store.ErrNotFound, "this gateway has not locked %s", name)
}

// unlockAll releases all locks.
func (s *Storage) unlockAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), finishTimeout)
	defer cancel()
	var errs []error
	for name, l := range s.locks {
		errs = append(errs, l.lease.Revoke(ctx))
		delete(s.locks, name)
	}
	return errors.Join(errs...)
}

// fence returns compares that make a write of a key fail if this gateway has lost the lock
// for it. certmagic names a lock by an operation and a name, such as "issue_cert_example.com". The
// name is a folder in the keys.
func (s *Storage) fence(key string) (compares []store.Compare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.locks {
		for folder := range strings.SplitSeq(key, "/") {
			if strings.HasSuffix(l.names, "_"+folder) {
				compares = append(compares, l.item)
				break
			}
		}
	}
	return compares
}
