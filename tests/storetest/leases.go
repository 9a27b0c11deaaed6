package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Leases adds leases to a KV that has none. They end with the process.
type Leases struct {
	store.KV

	mu     sync.Mutex // held for each transaction
	last   store.LeaseID
	leases map[store.LeaseID]*lease
	keys   map[string]store.LeaseID // of the last put
}

// WithLeases adds leases to kv, which must have no other writer.
func WithLeases(kv store.KV) *Leases {
	return &Leases{KV: kv, leases: map[store.LeaseID]*lease{}, keys: map[string]store.LeaseID{}}
}

// Txn implements [store.KV].
func (l *Leases) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	plain := store.Txn{If: t.If}
	for _, op := range t.Then {
		if op.Lease != 0 && l.leases[op.Lease] == nil {
			return store.TxnResult{}, store.Errorf(store.ErrNotFound, "lease %d not found", op.Lease)
		}
		op.Lease = 0
		plain.Then = append(plain.Then, op)
	}
	result, err := l.KV.Txn(ctx, plain)
	if err == nil && result.Succeeded {
		for _, op := range t.Then {
			if delete(l.keys, op.Key); op.Lease != 0 {
				l.keys[op.Key] = op.Lease
			}
		}
	}
	return result, err
}

// Lease implements [store.Leaser].
func (l *Leases) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	one := &lease{all: l, id: l.last, ttl: ttl}
	one.timer = time.AfterFunc(ttl, func() { _ = one.Revoke(context.Background()) })
	l.leases[one.id] = one
	return one, nil
}

// Close implements [store.KV].
func (l *Leases) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.leases {
		one.timer.Stop()
	}
	return l.KV.Close()
}

type lease struct {
	all   *Leases
	id    store.LeaseID
	ttl   time.Duration
	timer *time.Timer
}

func (l *lease) ID() store.LeaseID { return l.id }

func (l *lease) KeepAlive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	if l.all.leases[l.id] == nil || !l.timer.Stop() {
		return store.Errorf(store.ErrNotFound, "lease %d not found", l.id)
	}
	l.timer.Reset(l.ttl)
	return nil
}

func (l *lease) Revoke(ctx context.Context) error {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.timer.Stop()
	var t store.Txn
	for key, id := range l.all.keys {
		if id == l.id {
			t.Then = append(t.Then, store.Delete(key))
		}
	}
	if _, err := l.all.KV.Txn(ctx, t); err != nil {
		return err
	}
	for _, op := range t.Then {
		delete(l.all.keys, op.Key)
	}
	delete(l.all.leases, l.id)
	return nil
}
