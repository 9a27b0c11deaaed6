package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
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
	full bool // edges that start find no space in the store

	mu     sync.Mutex
	edges  []*edge // that run
	leases []store.Lease
}

func newRig(t *testing.T) *rig {
	kv := storetest.WithLeases(storetest.OpenBolt(t, t.TempDir()+"/gateway.db"))
	r := &rig{T: t, kv: kv, rate: 1, log: caught.New()}
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

// start starts an edge of a machine that has its name. It serves within a second.
func (r *rig) start(name string, l time.Duration) *edge {
	r.Helper()
	began := time.Now()
	e, err := r.open(name, disk{name, name}, l, 1)
	if err != nil {
		r.Fatal(err)
	}
	if err := e.Serving(); err != nil || time.Since(began) > time.Second {
		r.Errorf("%s has started in %v: %v", name, time.Since(began), err)
	}
	return e
}

// open starts an edge whose clocks run at a rate.
func (r *rig) open(name string, d disk, l time.Duration, rate float64) (*edge, error) {
	e := &edge{name: name, disk: d, clocks: newClocks(rate)}
	e.line = newLine(r, e.clocks)
	e.full.Store(r.full)
	e.cluster = cluster.New(cluster.Options{
		Edge:   store.Edge{Name: name, Instance: d.instance, Boot: d.boot, OnStoreLoss: l},
		Clocks: e.read, Logger: r.log.Logger,
	})
	var err error
	e.Store, err = store.New(e.line, store.Options{Edge: name, Cluster: e.cluster, Logger: r.log.Logger})
	if err != nil {
		return nil, err
	}
	e.SetSignInPolicy(store.SignInPolicy{LocalOff: true, KeysNeed: time.Nanosecond}) // keys with an owner are suspended
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
	id, secret, err := e.key(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return id, secret
}

func (e *edge) key(ctx context.Context) (id, secret string, err error) {
	name := fmt.Sprint(rand.Uint64())
	k, secret, err := e.CreateKey(ctx, store.DefaultAccount, store.KeyFields{Name: name, Scope: "*"})
	return k.ID, secret, err
}

// revoke revokes a key.
func (e *edge) revoke(ctx context.Context, id string) error {
	_, err := e.RevokeKey(ctx, store.DefaultAccount, id)
	return err
}

// give gives a key to a user who must sign in.
func (e *edge) give(ctx context.Context, id, user string) error {
	_, err := e.EditKey(ctx, store.DefaultAccount, id, func(k *store.Key) error { k.Owner = user; return nil })
	return err
}

// accepts reports whether an edge accepts a request with a key.
func (e *edge) accepts(secret string) bool {
	k, ok := e.FindKey(secret)
	return ok && k.Refusal(netip.Addr{}) == "" && e.Serving() == nil
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
