package certstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/cluster/certstore"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// rig has a store that several gateways share.
type rig struct {
	*testing.T
	kv store.KV
}

func newRig(t *testing.T) *rig {
	return &rig{t, storetest.WithLeases(storetest.OpenBolt(t, filepath.Join(t.TempDir(), "shared.db")))}
}

// edge is the storage of one gateway.
type edge struct {
	*certstore.Storage
	files string
	line  *line
}

// edge returns the storage of a gateway with the copies in files, "" for a new folder.
func (r *rig) edge(files string) *edge {
	if files == "" {
		files = r.TempDir()
	}
	e := &edge{files: files, line: &line{KV: storetest.Share(r.kv), up: make(chan struct{})}}
	e.line.set(true)
	e.Storage = certstore.New(certstore.Options{
		Open: func(ctx context.Context) (store.KV, error) {
			if err := e.line.pass(ctx); err != nil {
				return nil, err
			}
			return e.line, nil
		},
		Name: "test", Files: files,
	})
	r.Cleanup(func() {
		e.line.set(true)
		if err := e.Destruct(); err != nil {
			r.Errorf("closing the storage: %v", err)
		}
	})
	return e
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// holds fails the test unless a file has the content; "" means that it does not exist.
func (r *rig) holds(e *edge, key, want string) {
	r.Helper()
	got, err := e.Load(r.Context(), key)
	if err != nil && (want != "" || !isMissing(err)) || string(got) != want {
		r.Errorf("%s: %q, %v, want %q", key, got, err, want)
	}
}

// line is a gateway's connection to the store, which may be cut: calls wait until it is back
// or their context ends, as those of etcd do.
type line struct {
	store.KV

	mu  sync.Mutex
	up  chan struct{} // closed while the line is not cut
	got func()        // called when Get has an answer
}

func (l *line) set(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case up == l.isUp():
	case up:
		close(l.up)
	default:
		l.up = make(chan struct{})
	}
}

func (l *line) isUp() bool {
	select {
	case <-l.up:
		return true
	default:
		return false
	}
}

func (l *line) pass(ctx context.Context) error {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
}

func (l *line) Get(ctx context.Context, key string) (store.Item, error) {
	if err := l.pass(ctx); err != nil {
		return store.Item{}, err
	}
	item, err := l.KV.Get(ctx, key)
	if l.got != nil {
		l.got()
	}
	return item, err
}

func (l *line) Each(ctx context.Context, span store.Span, f func(store.Item) error) (int64, error) {
	if err := l.pass(ctx); err != nil {
		return 0, err
	}
	return l.KV.Each(ctx, span, f)
}

func (l *line) Txn(ctx context.Context, txn store.Txn) (store.TxnResult, error) {
	if err := l.pass(ctx); err != nil {
		return store.TxnResult{}, err
	}
	return l.KV.Txn(ctx, txn)
}

func (l *line) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	lease, err := l.KV.(store.Leaser).Lease(ctx, ttl)
	return &lineLease{lease, l}, err
}

type lineLease struct {
	store.Lease
	line *line
}

func (l *lineLease) KeepAlive(ctx context.Context) error {
	return errors.Join(l.line.pass(ctx), l.Lease.KeepAlive(ctx))
}

func (l *lineLease) Revoke(ctx context.Context) error {
	return errors.Join(l.line.pass(ctx), l.Lease.Revoke(ctx))
}
