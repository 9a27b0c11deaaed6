package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/queue"
)

// testEdge is a gateway of a cluster with the queues of one deployment.
type testEdge struct {
	*hall
	name  string
	peers map[string]*testEdge
	life  context.Context // ends when it is killed
	kill  context.CancelFunc

	mu      sync.Mutex
	owner   string // as this gateway knows it
	changed time.Time
	doubts  bool         // the owner is silent
	failing error        // of Enter
	alone   atomic.Int64 // calls of Unreachable for requests that wait
}

// newCluster returns gateways with these names. The first is the owner.
func newCluster(t *testing.T, limit int, names ...string) map[string]*testEdge {
	edges := map[string]*testEdge{}
	for _, name := range names {
		e := &testEdge{hall: newHall(t, limit), name: name, peers: edges, owner: names[0]}
		e.life, e.kill = context.WithCancel(t.Context())
		e.Share(e)
		edges[name] = e
	}
	t.Cleanup(func() { time.Sleep(2 * time.Second) }) // places at former owners end
	return edges
}

// follows has the gateway notice a new owner.
func (e *testEdge) follows(owner string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.owner, e.changed, e.doubts = owner, time.Now(), false
}

// fails has the gateway fail to reach others; nil: no longer.
func (e *testEdge) fails(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing = err
}

func (e *testEdge) Owner(queue.Name) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	settled := time.Since(e.changed) >= time.Second && !e.doubts
	if e.owner == e.name {
		return "", settled
	}
	return e.owner, settled
}

func (e *testEdge) Enter(ctx context.Context, owner string, r queue.Request) (queue.Loan, error) {
	e.mu.Lock()
	failing := e.failing
	e.mu.Unlock()
	if failing != nil {
		return nil, failing
	}
	if r.Running {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	to := e.peers[owner]
	gone := errors.New("the owner is gone")
	if to.life.Err() != nil {
		return nil, gone
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(to.life, func() { cancel(gone) })()
	place, err := to.Lend(ctx, r)
	return loan{place, to.life}, err
}

func (e *testEdge) Unreachable(_ string, r queue.Request, _ error) {
	if !r.Running {
		e.alone.Add(1)
	}
}

// loan is a place at another gateway of the test.
type loan struct {
	queue.Place
	life context.Context
}

func (l loan) Lost() bool { return l.life.Err() != nil }

// TestShared: keys take turns over all gateways, and refusals are those of the owner.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newCluster(t, 1, "x", "y", "z")
		x, y, z := edges["x"], edges["y"], edges["z"]
		ctx, leave := context.WithCancel(t.Context())
		b := queue.Bounds{Length: 5, Wait: time.Minute}
		x.come(t.Context(), b, "a1")
		y.come(t.Context(), b, "a2", "a3")
		z.come(t.Context(), b, "b1")
		x.come(t.Context(), b, "c1")
		z.come(ctx, b, "d1")
		y.come(t.Context(), b, "a4", "e1")
		y.expect("refused at y", &y.refused, "a4: "+queue.ErrFull.Error(), "a3: "+queue.ErrFull.Error())
		leave()
		synctest.Wait()
		z.expect("refused at z", &z.refused, "d1: "+context.Canceled.Error())
		for i, e := range []*testEdge{x, y, z, x, y} {
			if e.leave(); x.waiting() != max(3-i, 0) || y.waiting()+z.waiting() != 0 {
				t.Errorf("%d wait at the owner, %d and %d elsewhere", x.waiting(), y.waiting(), z.waiting())
			}
		}
		x.expect("order at x", &x.order, "a1", "c1")
		y.expect("order at y", &y.order, "a2", "e1")
		z.expect("order at z", &z.order, "b1")
		z.come(t.Context(), b, "a5")
		y.come(t.Context(), b, "a6")
		time.Sleep(time.Minute)
		synctest.Wait()
		y.expect("after a minute", &y.refused, "a4: "+queue.ErrFull.Error(), "a3: "+queue.ErrFull.Error(), "a6: "+queue.ErrTimeout.Error())
		z.leave()
	})
}

// TestOwnerKilled: what runs counts at the new owner, which gives places only then.
func TestOwnerKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newCluster(t, 2, "x", "y", "z")
		x, y, z := edges["x"], edges["y"], edges["z"]
		y.come(t.Context(), queue.Bounds{}, "a1")
		z.come(t.Context(), queue.Bounds{}, "b1", "b2")
		x.kill()
		y.follows("y")
		y.come(t.Context(), queue.Bounds{Length: -1}, "c1") // it waits for those that run
		time.Sleep(500 * time.Millisecond)
		z.follows("y")
		time.Sleep(time.Second)
		synctest.Wait()
		y.expect("refused", &y.refused, "c1: "+queue.ErrFull.Error())
		z.expect("order at z", &z.order, "b1")
		if n := y.waiting(); n != 1 {
			t.Errorf("%d wait at the new owner, want b2", n)
		}
		y.leave()
		z.expect("order at z", &z.order, "b1", "b2")
		z.leave()
		y.come(t.Context(), queue.Bounds{}, "d1")
		y.expect("order at y", &y.order, "a1", "d1")
		y.leave()
		z.leave()
	})
}

// TestOwnerKilledNoticedLate: the new owner notices later than others that it is.
func TestOwnerKilledNoticedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newCluster(t, 1, "x", "y", "z")
		x, y, z := edges["x"], edges["y"], edges["z"]
		y.come(t.Context(), queue.Bounds{}, "a1")
		x.kill()
		z.follows("y")
		time.Sleep(2 * time.Second)
		y.mu.Lock()
		y.doubts = true
		y.mu.Unlock()
		z.come(t.Context(), queue.Bounds{}, "b1")
		time.Sleep(time.Second)
		y.follows("y")
		time.Sleep(2 * time.Second)
		z.expect("while a1 runs", &z.order)
		y.leave()
		z.expect("after it", &z.order, "b1")
		z.leave()
	})
}

// TestOwnerUnreachable: requests are counted at their gateway alone, and at the owner once it
// can be reached.
func TestOwnerUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newCluster(t, 1, "x", "y")
		x, y := edges["x"], edges["y"]
		y.fails(errors.New("no stream"))
		y.come(t.Context(), queue.Bounds{}, "a1")
		y.expect("at first", &y.order)
		time.Sleep(1500 * time.Millisecond)
		y.come(t.Context(), queue.Bounds{}, "a2")
		time.Sleep(1500 * time.Millisecond)
		y.expect("alone", &y.order, "a1")
		if y.alone.Load() == 0 || y.waiting() != 1 {
			t.Errorf("%d reports, %d wait", y.alone.Load(), y.waiting())
		}
		y.fails(nil)
		time.Sleep(time.Second)
		x.come(t.Context(), queue.Bounds{Length: -1}, "b1")
		x.expect("refused", &x.refused, "b1: "+queue.ErrFull.Error())
		y.leave()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		y.expect("after its turn", &y.order, "a1", "a2")

		y.fails(errors.New("no stream"))
		go y.come(t.Context(), queue.Bounds{}, "a3")
		time.Sleep(500 * time.Millisecond)
		y.fails(nil)
		time.Sleep(10 * time.Second)
		before := y.alone.Load()
		x.kill()
		time.Sleep(500 * time.Millisecond)
		y.follows("y")
		time.Sleep(2 * time.Second)
		if n := y.alone.Load(); n != before || y.waiting() != 1 {
			t.Errorf("lost while it waited: %d wait, %d reports", y.waiting(), n-before)
		}
		y.leave()
		y.leave()
	})
}

// TestOwnersChange has owners change and die while gateways send requests, and notice it at
// different times. There are never more requests than the limit.
func TestOwnersChange(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			const limit = 4
			random := rand.New(rand.NewPCG(seed, 0))
			names := strings.Split("abcdefgh", "")
			edges := newCluster(t, limit, names...)
			var running, most, done atomic.Int64
			var all sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for _, e := range edges {
				for i := range 3 {
					pause := func() time.Duration { return time.Duration(1+rand.IntN(800)) * time.Millisecond }
					all.Go(func() {
						for ctx.Err() == nil && e.life.Err() == nil {
							place, err := e.Queues.Enter(e.life, name(), client(fmt.Sprint(i)), queue.Bounds{})
							if err != nil {
								continue
							}
							most.Store(max(most.Load(), running.Add(1)))
							select {
							case <-time.After(pause()):
							case <-e.life.Done():
							}
							running.Add(-1)
							place.Leave()
							done.Add(1)
						}
					})
				}
			}
			owner := 0
			for range 40 {
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
				former := owner
				owner = random.IntN(len(names))
				if owner != former && len(names) > 3 && random.IntN(4) == 0 {
					edges[names[former]].kill()
					names = append(names[:former:former], names[former+1:]...)
					if owner > former {
						owner--
					}
				}
				for _, name := range names {
					to := names[owner]
					time.AfterFunc(time.Duration(random.IntN(500))*time.Millisecond, func() { edges[name].follows(to) })
				}
				time.Sleep(time.Second)
			}
			stop()
			all.Wait()
			time.Sleep(2 * time.Second)
			last := edges[names[0]]
			for range limit {
				last.come(t.Context(), queue.Bounds{Length: -1}, "z")
			}
			last.expect("places that were not returned", &last.refused)
			for range len(last.places) {
				last.leave()
			}
			if most.Load() > limit || done.Load() < 300 {
				t.Errorf("seed %d: %d requests, up to %d at a time", seed, done.Load(), most.Load())
			}
		})
	}
}
