package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/cluster"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/store/localcopy"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/storetest"
)

// rig is a cluster of edges in one process, whose lines to the store and to each other can be
// cut.
type rig struct {
	*testing.T
	kv     store.KV
	copies string        // folder
	delay  time.Duration // between two edges, at most
	log    *caught.Log

	mu    sync.Mutex
	edges map[string]*edge
	cut   map[[2]string]bool // lines between two edges
}

func newRig(t *testing.T) *rig {
	dir := t.TempDir()
	r := &rig{T: t, kv: storetest.WithLeases(storetest.OpenBolt(t, dir+"/gateway.db")), copies: dir, delay: 300 * time.Millisecond, log: caught.New(), edges: map[string]*edge{}, cut: map[[2]string]bool{}}
	t.Cleanup(func() {
		for _, e := range r.all() {
			e.line.set(true)
			e.stop()
		}
		_ = r.kv.Close()
	})
	return r
}

// edge is a running edge.
type edge struct {
	*store.Store
	name    string
	line    *line
	cluster *cluster.Cluster
}

// start starts an edge.
func (r *rig) start(name string, maxStale time.Duration) *edge {
	r.Helper()
	e, err := r.tryStart(name, name, maxStale)
	if err != nil {
		r.Fatal(err)
	}
	return e
}

func (r *rig) tryStart(name, instance string, maxStale time.Duration) (*edge, error) {
	return r.startOver(newLine(r.kv), name, instance, maxStale)
}

// startOver starts an edge over a line, from its copy if the line is cut.
func (r *rig) startOver(l *line, name, instance string, maxStale time.Duration) (*edge, error) {
	e := &edge{name: name, line: l}
	logger := r.log.Logger
	kv, err := localcopy.Open(r.Context(), localcopy.Options{Open: l.connect, Path: filepath.Join(r.copies, name+".db"), Pause: 5 * time.Second, Logger: logger})
	if err != nil {
		return nil, err
	}
	e.cluster = cluster.New(cluster.Options{
		Edge: store.Edge{Name: name, Instance: instance, OnStoreLoss: maxStale},
		Ask:  func(ctx context.Context, peer store.Edge) (cluster.Answer, error) { return r.ask(ctx, name, peer.Name) }, Logger: logger,
	})
	if e.Store, err = store.New(kv, store.Options{Edge: name, Cluster: e.cluster, Logger: logger}); err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	if err := e.cluster.Join(r.Context(), e.Store); err != nil {
		_ = e.Close()
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.edges[name] = e
	return e, nil
}

// stop ends an edge like a lost process: its record stays.
func (e *edge) stop() {
	e.line.die()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = e.cluster.Leave(ctx)
	_ = e.Close()
}

// ask brings a question from one edge to another.
func (r *rig) ask(ctx context.Context, from, to string) (none cluster.Answer, err error) {
	delay := func() error {
		select {
		case <-time.After(rand.N(r.delay)):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := delay(); err != nil {
		return none, err
	}
	r.mu.Lock()
	e, cut := r.edges[to], r.cut[[2]string{min(from, to), max(from, to)}]
	r.mu.Unlock()
	if e == nil || cut {
		return none, errors.New("unreachable")
	}
	if e.line.panics.Load() == &askPanics {
		panic(caught.Secret)
	}
	answer := e.cluster.Answer()
	return answer, delay()
}

// all returns the running edges.
func (r *rig) all() map[string]*edge {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.edges)
}

// key creates a key that all edges with contact know.
func (r *rig) key(e *edge) (id, secret string) {
	r.Helper()
	k, secret, err := e.CreateKey(r.Context(), store.Key{Account: store.DefaultAccount, Name: fmt.Sprint(rand.Uint64()), Scope: "*"})
	if err != nil {
		r.Fatal(err)
	}
	return k.ID, secret
}

// accepts reports whether an edge accepts a request with a key.
func (e *edge) accepts(secret string) bool {
	k, ok := e.FindKey(secret)
	return e.Serving() == nil && ok && !k.Revoked()
}

// line is an edge's connection to the store. While it is cut, calls wait, and nothing comes
// from watchers; calls that wait may have been carried out.
type line struct {
	*storetest.Shared

	mu   sync.Mutex
	open chan struct{} // closed while the line works
	lost chan struct{} // closed when the line is cut
	dead bool

	compactions []int64 // revisions

	panics atomic.Pointer[string] // transactions that write a key with this prefix panic; nil: none
}

var errLine = fmt.Errorf("%w: the line is cut", store.ErrUnavailable)

func newLine(kv store.KV) *line {
	l := &line{Shared: storetest.Share(kv), open: make(chan struct{}), lost: make(chan struct{})}
	close(l.open)
	return l
}

// askPanics is the value of panics that makes questions to an edge panic.
var askPanics = "no key has this prefix"

// connect returns the KV at the other end of the line.
func (l *line) connect(ctx context.Context) (store.KV, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := l.Get(ctx, "any")
	return l, err
}

// set cuts the line or mends it.
func (l *line) set(works bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		if !works {
			l.open = make(chan struct{})
			close(l.lost)
			open := l.open
			go l.CutOff(errLine, func() { <-open })
		}
	default:
		if works {
			l.lost = make(chan struct{})
			close(l.open)
		}
	}
}

// die makes all calls fail from now on.
func (l *line) die() {
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.set(false)
	l.set(true)
}

// call makes a call over the line, which may be cut before and after it.
func call[T any](ctx context.Context, l *line, f func() (T, error)) (T, error) {
	var none T
	for {
		l.mu.Lock()
		open, lost, dead := l.open, l.lost, l.dead
		l.mu.Unlock()
		if dead {
			return none, store.ErrClosed
		}
		select {
		case <-open:
		case <-ctx.Done():
			return none, fmt.Errorf("%w: %w", errLine, ctx.Err())
		}
		select {
		case <-lost: // an older state
			continue
		default:
		}
		result, err := f()
		select {
		case <-lost: // the answer is lost
			return none, errLine
		case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
			return result, err
		}
	}
}

func (l *line) Get(ctx context.Context, key string) (store.Item, error) {
	return call(ctx, l, func() (store.Item, error) { return l.Shared.Get(ctx, key) })
}

func (l *line) Each(ctx context.Context, span store.Span, f func(store.Item) error) (int64, error) {
	return call(ctx, l, func() (int64, error) { return l.Shared.Each(ctx, span, f) })
}

func (l *line) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if prefix := l.panics.Load(); prefix != nil && slices.ContainsFunc(t.Then, func(op store.Op) bool { return strings.HasPrefix(op.Key, *prefix) }) {
		panic(caught.Secret)
	}
	return call(ctx, l, func() (store.TxnResult, error) { return l.Shared.Txn(ctx, t) })
}

func (l *line) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	w, err := call(ctx, l, func() (store.Watcher, error) { return l.Shared.Watch(ctx, span, from) })
	if err != nil {
		return nil, err
	}
	return &lineWatcher{w, l}, nil
}

func (l *line) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	lease, err := call(ctx, l, func() (store.Lease, error) { return l.Shared.Lease(ctx, ttl) })
	if err != nil {
		return nil, err
	}
	return &lineLease{lease, l}, nil
}

// Compact implements [store.Compacter].
func (l *line) Compact(_ context.Context, revision int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compactions = append(l.compactions, revision)
	return nil
}

func (l *line) compacted() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.compactions
}

type lineWatcher struct {
	store.Watcher
	l *line
}

func (w *lineWatcher) Progress(ctx context.Context) (int64, error) {
	return call(ctx, w.l, func() (int64, error) { return w.Watcher.Progress(ctx) })
}

type lineLease struct {
	store.Lease
	l *line
}

func (l *lineLease) KeepAlive(ctx context.Context) error {
	_, err := call(ctx, l.l, func() (struct{}, error) { return struct{}{}, l.Lease.KeepAlive(ctx) })
	return err
}

func (l *lineLease) Revoke(ctx context.Context) error {
	_, err := call(ctx, l.l, func() (struct{}, error) { return struct{}{}, l.Lease.Revoke(ctx) })
	return err
}
