package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/cluster"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/storetest"
)

// rig is a cluster of edges in one process.
type rig struct {
	*testing.T
	kv   *storetest.Leases
	rate float64 // of the clock of the store
	log  *caught.Log

	mu     sync.Mutex
	edges  []*edge // that run
	leases []store.Lease
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, kv: storetest.WithLeases(storetest.OpenBolt(t, t.TempDir()+"/gateway.db")), rate: 1, log: caught.New()}
	t.Cleanup(func() {
		for _, e := range r.all() {
			r.kill(e)
		}
		_ = r.kv.Close()
	})
	return r
}

// disk is a data directory, in one run of its machine.
type disk struct{ instance, boot string }

// edge is a running edge.
type edge struct {
	*store.Store
	*line
	*clocks
	name    string
	disk    disk
	cluster *cluster.Cluster
}

// start starts an edge of a machine that has its name.
func (r *rig) start(name string, l time.Duration) *edge {
	r.Helper()
	e, err := r.open(name, disk{name, name}, l, 1)
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// open starts an edge whose clocks run at a rate.
func (r *rig) open(name string, d disk, l time.Duration, rate float64) (*edge, error) {
	e := &edge{name: name, disk: d, clocks: newClocks(rate)}
	e.line = newLine(r, e.clocks)
	e.cluster = cluster.New(cluster.Options{
		Edge: store.Edge{Name: name, Instance: d.instance, Boot: d.boot, OnStoreLoss: l}, Clocks: e.read, Logger: r.log.Logger,
	})
	var err error
	if e.Store, err = store.New(e.line, store.Options{Edge: name, Cluster: e.cluster, Logger: r.log.Logger}); err != nil {
		return nil, err
	}
	if err := e.cluster.Join(r.Context(), e.Store); err != nil {
		return nil, errors.Join(err, e.Store.Close())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.edges = append(r.edges, e)
	return e, nil
}

// kill ends an edge like a lost process: its record stays.
func (r *rig) kill(e *edge) {
	e.die()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.end(ctx, e)
}

// leave ends an edge like SIGTERM.
func (r *rig) leave(e *edge) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r.end(ctx, e)
}

func (r *rig) end(ctx context.Context, e *edge) {
	r.mu.Lock()
	r.edges = slices.DeleteFunc(r.edges, func(other *edge) bool { return other == e })
	r.mu.Unlock()
	e.resume()
	_ = e.cluster.Leave(ctx)
	e.die()
	_ = e.Store.Close()
}

// all returns the running edges.
func (r *rig) all() []*edge {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.edges)
}

// changeLeader renews all leases, as a new leader of etcd does.
func (r *rig) changeLeader() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.leases {
		_ = l.KeepAlive(context.Background())
	}
}

// key creates a key.
func (r *rig) key(e *edge) (id, secret string) {
	r.Helper()
	k, secret, err := e.CreateKey(r.Context(), store.Key{Account: store.DefaultAccount, Name: fmt.Sprint(rand.Uint64()), Scope: "*"})
	if err != nil {
		r.Fatal(err)
	}
	return k.ID, secret
}

// revoke revokes a key.
func (e *edge) revoke(ctx context.Context, id string) error {
	_, err := e.RevokeKey(ctx, store.DefaultAccount, id)
	return err
}

// accepts reports whether an edge accepts a request with a key.
func (e *edge) accepts(secret string) bool {
	k, ok := e.FindKey(secret)
	return ok && !k.Revoked() && e.Serving() == nil
}

// until waits until f is true, and returns how long that took.
func (r *rig) until(f func() bool) time.Duration {
	r.Helper()
	began := time.Now()
	for ; !f(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Hour {
			r.Fatal("waited for an hour")
		}
	}
	return time.Since(began)
}

// clocks are those of a machine, which can be suspended with all that runs there.
type clocks struct {
	start time.Time
	rate  float64

	mu      sync.Mutex
	off     cluster.Reading // what they are behind
	stopped time.Time
	running chan struct{} // closed while it runs
}

func newClocks(rate float64) *clocks {
	c := &clocks{start: time.Now(), rate: rate, running: make(chan struct{})}
	close(c.running)
	return c
}

// wait waits while the machine is suspended.
func (c *clocks) wait() {
	for {
		c.mu.Lock()
		running := c.running
		c.mu.Unlock()
		select {
		case <-running:
			return
		default:
			<-running
		}
	}
}

func (c *clocks) read() cluster.Reading {
	c.wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Duration(float64(time.Since(c.start)) * c.rate)
	return cluster.Reading{Monotonic: now - c.off.Monotonic, Boot: now - c.off.Boot, Wall: now - c.off.Wall}
}

// jump sets the wall clock.
func (c *clocks) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off.Wall -= d
}

func (c *clocks) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.IsZero() {
		c.stopped, c.running = time.Now(), make(chan struct{})
	}
}

func (c *clocks) suspended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.stopped.IsZero()
}

// resume ends a suspension, in which the first stood of the three clocks stood still.
func (c *clocks) resume(stood ...*time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.IsZero() {
		return
	}
	for _, clock := range stood {
		*clock += time.Duration(float64(time.Since(c.stopped)) * c.rate)
	}
	c.stopped = time.Time{}
	close(c.running)
}

// line is an edge's connection to the store. While it is cut, calls wait, and nothing comes
// from watchers; calls that wait may have been carried out, or be carried out later.
type line struct {
	*storetest.Shared
	r      *rig
	clocks *clocks
	slow   atomic.Int64 // the time that a call takes at most, if not 20 ms
	late   atomic.Bool  // transactions that were given up are carried out later

	mu   sync.Mutex
	open chan struct{} // closed while the line works
	lost chan struct{} // closed when the line is cut
	dead bool

	compactions []int64 // revisions

	panics   atomic.Pointer[string]    // transactions that write a key with this prefix panic; nil: none
	kept     atomic.Pointer[func()]    // called when the store has renewed a lease
	reported atomic.Pointer[store.Txn] // with the last report
}

var errLine = fmt.Errorf("%w: the line is cut", store.ErrUnavailable)

func newLine(r *rig, c *clocks) *line {
	l := &line{Shared: storetest.Share(r.kv), r: r, clocks: c, open: make(chan struct{}), lost: make(chan struct{})}
	close(l.open)
	return l
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

// gone reports whether the edge has ended.
func (l *line) gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// call makes a call over the line, which may be cut before and after it.
func call[T any](ctx context.Context, l *line, f func() (T, error)) (T, error) {
	defer l.clocks.wait()
	var none T
	for {
		l.clocks.wait()
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
		case <-ctx.Done():
			return none, fmt.Errorf("%w: %w", errLine, ctx.Err())
		case <-time.After(rand.N(max(20*time.Millisecond, time.Duration(l.slow.Load())))):
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
	writes := func(prefix string) bool {
		return slices.ContainsFunc(t.Then, func(op store.Op) bool { return !op.Delete && strings.HasPrefix(op.Key, prefix) })
	}
	if prefix := l.panics.Load(); prefix != nil && writes(*prefix) {
		panic(caught.Secret)
	}
	if writes("edge_reports/") {
		l.reported.Store(&t)
	}
	done := false
	result, err := call(ctx, l, func() (store.TxnResult, error) { done = true; return l.Shared.Txn(ctx, t) })
	if err != nil && !done && l.late.Load() {
		time.AfterFunc(rand.N(2*time.Minute), func() { _, _ = l.Shared.Txn(context.Background(), t) })
	}
	return result, err
}

func (l *line) Watch(ctx context.Context, span store.Span, from int64) (store.Watcher, error) {
	w, err := call(ctx, l, func() (store.Watcher, error) { return l.Shared.Watch(ctx, span, from) })
	if err != nil {
		return nil, err
	}
	return &lineWatcher{w, l}, nil
}

func (l *line) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	lease, err := call(ctx, l, func() (store.Lease, error) { return l.Shared.Lease(ctx, time.Duration(float64(ttl)/l.r.rate)) })
	if err != nil {
		return nil, err
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.leases = append(l.r.leases, lease)
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

func (w *lineWatcher) Next(ctx context.Context) (store.Batch, error) {
	defer w.l.clocks.wait()
	return w.Watcher.Next(ctx)
}

func (w *lineWatcher) Progress(ctx context.Context) (int64, error) {
	return call(ctx, w.l, func() (int64, error) { return w.Watcher.Progress(ctx) })
}

type lineLease struct {
	store.Lease
	l *line
}

func (l *lineLease) KeepAlive(ctx context.Context) error {
	_, err := call(ctx, l.l, func() (struct{}, error) {
		err := l.Lease.KeepAlive(ctx)
		if f := l.l.kept.Load(); f != nil {
			(*f)()
		}
		return struct{}{}, err
	})
	return err
}

func (l *lineLease) Revoke(ctx context.Context) error {
	_, err := call(ctx, l.l, func() (struct{}, error) { return struct{}{}, l.Lease.Revoke(ctx) })
	return err
}
