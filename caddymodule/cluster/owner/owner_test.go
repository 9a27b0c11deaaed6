package owner

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// waitingPermit is a permit that a request waits for.
type waitingPermit struct {
	permit queue.Permit
	err    error
	at     time.Time
}

// come has a request arrive.
func (e *testEdge) come(t *testing.T, key string, wait time.Duration) *waitingPermit {
	h := new(waitingPermit)
	go func() {
		h.permit, h.err = e.enter(t.Context(), key, 9, wait)
		h.at = time.Now()
	}()
	synctest.Wait()
	return h
}

// TestOrder: all edges have the same owner, one that reports and does not drain.
func TestOrder(t *testing.T) {
	edges := newEdges(t, 1, "a", "b", "c", "d")
	expect := func(what string, want int) {
		t.Helper()
		for _, e := range edges {
			if got := e.first(model); got != edges[want].Edge {
				t.Errorf("%s: at %s the owner is %s, not %s", what, e.Edge, got, edges[want].Edge)
			}
		}
	}
	learn := func(i int, reports, draining bool) {
		for _, e := range edges {
			e.learns(edges[i].Edge, reports, draining)
		}
	}
	expect("at first", 0)
	learn(0, true, true)
	expect("while the first drains", 1)
	learn(1, false, false)
	expect("while the second has no report", 2)
	learn(0, true, false)
	expect("when the first is back", 0)
	owners := map[string]bool{}
	for deployment := range strings.SplitSeq("abcdefghijklmnopqrstuvwxyz", "") {
		owners[edges[0].first(queue.Name{Account: "default", Deployment: deployment})] = true
	}
	if len(owners) != 3 {
		t.Errorf("the owners of many deployments are %v", owners)
	}
	for i := range edges {
		learn(i, false, false)
	}
	if got := edges[2].first(model); got != edges[2].Edge {
		t.Errorf("without any report the owner is %s", got)
	}
}

// TestWait: a request waits at its owner for as long as it may, which is longer than the owner may be
// silent, and leaves nothing there.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newEdges(t, 1, "a", "b")
		owner, other := edges[0], edges[1]
		first := other.come(t, "k", time.Minute)
		began := time.Now()
		_, err := other.enter(t.Context(), "k", 9, time.Minute)
		if !errors.Is(err, queue.ErrTimeout) || time.Since(began) != time.Minute {
			t.Errorf("after a minute: %v after %v", err, time.Since(began))
		}
		if _, err := other.enter(t.Context(), "k", -1, time.Minute); !errors.Is(err, queue.ErrFull) {
			t.Errorf("a request that may not wait: %v", err)
		}
		last := other.come(t, "k", time.Hour)
		time.Sleep(time.Minute)
		first.permit.Leave()
		synctest.Wait()
		if last.err != nil || !last.permit.Waited() || owner.waiting()+other.waiting() != 0 || other.log.Len() != 0 {
			t.Errorf("after its wait: %+v, log: %s", last, other.log.String())
		}
		for range 1000 { // the permit arrives at the moment the client leaves
			ctx, leave := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			clients.Go(func() {
				if permit, err := other.enter(ctx, "k", 9, time.Hour); err == nil {
					permit.Leave()
				}
			})
			synctest.Wait()
			go leave()
			last.permit.Leave()
			clients.Wait()
			synctest.Wait()
			if last = other.come(t, "k", -1); last.err != nil {
				t.Fatalf("a permit was lost: %v", last.err)
			}
		}
		last.permit.Leave()
	})
}

// TestOwnerDies: requests that wait enter at the next owner within a second, with what is left of their
// wait. Those that run go on, and are not counted.
func TestOwnerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newEdges(t, 2, "a", "b", "c")
		owner, next, other := edges[0], edges[1], edges[2]
		running := []*waitingPermit{next.come(t, "k", time.Hour), other.come(t, "k", time.Hour)}
		waits := []*waitingPermit{next.come(t, "k", time.Hour), other.come(t, "k", time.Hour)}
		time.Sleep(50 * time.Millisecond) // so that it enters again after the others
		began := time.Now()
		waits = append(waits, other.come(t, "k", 10*time.Second))
		time.Sleep(5 * time.Second)
		owner.kill()
		killed := time.Now()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		for i, w := range waits[:2] {
			if w.err != nil || w.at.Sub(killed) > silentTimeout {
				t.Errorf("request %d, which waits when its owner is killed: %v after %v", i, w.err, w.at.Sub(killed))
			}
		}
		if w := waits[2]; !errors.Is(w.err, queue.ErrTimeout) || w.at.Sub(began) != 10*time.Second {
			t.Errorf("a request that may wait for 10 seconds: %v after %v", w.err, w.at.Sub(began))
		}
		for _, e := range edges[1:] {
			_, doubted := e.doubted.Load(owner.Edge)
			if !doubted || !strings.Contains(e.log.String(), "edge="+owner.Edge+" instead="+next.Edge) {
				t.Errorf("%s doubts its owner: %t, log: %s", e.Edge, doubted, e.log.String())
			}
		}
		last := other.come(t, "k", time.Hour)
		for _, r := range running {
			r.permit.Leave()
		}
		if synctest.Wait(); next.waiting() != 1 || !last.at.IsZero() {
			t.Errorf("%d wait at the next owner, want the last request: %+v", next.waiting(), last)
		}
		waits[0].permit.Leave()
		synctest.Wait()
		if last.err != nil || last.at.IsZero() {
			t.Errorf("the last request: %+v", last)
		}
	})
}

// TestOwnerSilent: a request waits for half a second for an owner that does not answer, for two of
// them at most, and later requests do not wait for them.
func TestOwnerSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newEdges(t, 1, "a", "b", "c", "d")
		e := edges[3]
		took := func(what string, want time.Duration, wantErr error, length int, wait time.Duration) {
			t.Helper()
			began := time.Now()
			permit, err := e.enter(t.Context(), "k", length, wait)
			if !errors.Is(err, wantErr) || time.Since(began) != want {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
			if err == nil {
				permit.Leave()
				synctest.Wait()
			}
		}
		edges[0].kill()
		took("the first owner is silent", answerTimeout, nil, 1, time.Minute)
		took("it is passed over", 0, nil, 1, time.Minute)
		time.Sleep(skipTime)
		took("its connection has ended", 0, nil, 1, time.Minute)
		time.Sleep(skipTime)
		there := edges[1].come(t, "k", time.Minute)
		took("a wait, with that for the owner", 2*time.Second, queue.ErrTimeout, 1, 2*time.Second)
		took("no wait", 0, queue.ErrFull, -1, time.Second)
		there.permit.Leave()
		edges[0].start(t, edges[0].Edge, 1)
		time.Sleep(skipTime)
		for _, silent := range edges[:3] {
			silent.kill()
		}
		took("three owners are silent", maxSilent*answerTimeout, nil, 1, time.Minute)
		took("two are skipped", answerTimeout, nil, 1, 100*time.Millisecond)
		took("all are passed over", 0, nil, 1, time.Minute)
	})
}

// TestOwnerHasNotDialed: an owner that has no connection to this edge yet is asked again soon.
func TestOwnerHasNotDialed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newEdges(t, 1, "a", "b")
		owner, e := edges[0], edges[1]
		e.Owners.Open = func(string) (link.Stream, error) { return nil, tunnel.ErrNoPeer }
		if c := e.come(t, "k", time.Minute); c.err != nil || e.first(model) != e.Edge {
			t.Errorf("without a connection, %s counts: %v", e.first(model), c.err)
		}
		if time.Sleep(dialTime); e.first(model) != owner.Edge {
			t.Errorf("%v later, %s counts", dialTime, e.first(model))
		}
	})
}

// TestOwnerDrains: an owner that knows earlier than others that it drains refuses.
func TestOwnerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newEdges(t, 1, "a", "b", "c")
		edges[0].learns(edges[0].Edge, true, true)
		began := time.Now()
		first, second := edges[0].come(t, "k", time.Hour), edges[2].come(t, "k", time.Hour)
		if first.err != nil || edges[1].waiting() != 1 || time.Since(began) != 0 {
			t.Errorf("%+v, %d wait at the next owner", first, edges[1].waiting())
		}
		first.permit.Leave()
		synctest.Wait()
		if second.err != nil || second.at.IsZero() {
			t.Errorf("the request after it: %+v", second)
		}
	})
}

// TestLimits has requests pass the limits that another edge counts.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		edges := newEdges(t, 0, "a", "b", "c")
		owner, e := edges[0], edges[1]
		need := queue.Need{Cost: limits.Cost{Input: 60, Output: 30}}
		r := queue.Request{Name: queue.Name{Account: "default"}, Key: "k", Need: need}
		for owner.Edge != e.first(r.Name) {
			owner, e = edges[len(edges)-1], edges[0]
			edges = edges[:len(edges)-1]
		}
		used := func(want int64) {
			t.Helper()
			synctest.Wait()
			if l, err := e.Queues.Usage(t.Context(), "default", "k"); err != nil || l.States[0].Used != want {
				t.Errorf("used: %+v, %v, want %d", l, err, want)
			}
		}
		permit, err := e.Enter(t.Context(), r)
		if err != nil || len(permit.Usage().States) != 2 || permit.Usage().States[0].Used != 97 {
			t.Fatalf("the first request: %+v, %v", permit, err)
		}
		_, err = e.Enter(t.Context(), r)
		refused, _ := errors.AsType[*limits.Refusal](err)
		if refused == nil || refused.Limit != limits.TokensPerMinute || refused.Of != limits.OfKey ||
			len(refused.States) != 2 {
			t.Errorf("the second request: %+v, %v", refused, err)
		}
		permit.Settle(limits.Used{Requests: 1, Tokens: 20, Output: 5, BusyMillis: 3})
		used(27)
		if permit, err = e.Enter(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		permit.Leave()
		used(27)
		permit, err = e.Enter(t.Context(), r)
		owner.kill()
		time.Sleep(lostTime)
		permit.Settle(limits.Used{Requests: 1, Tokens: 20}) // the next owner reads it in the sums
		used(7)
		if err != nil || owner.waiting() != 0 {
			t.Errorf("at the end: %v", err)
		}
	})
}

// TestChanges kills owners, starts them again and drains them while requests come and go, and edges
// notice it at different times. Never more than twice the limit run, and at rest never more than that.
func TestChanges(t *testing.T) {
	const limit, longest = 4, 800 * time.Millisecond
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			edges := newEdges(t, limit, "a", "b", "c", "d", "e")
			var running, most, done atomic.Int64
			var all sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for i := range 5 * 4 {
				e, pauses := edges[i%5], rand.New(rand.NewPCG(seed, uint64(i)))
				all.Go(func() {
					for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
						if e.killed() {
							continue
						}
						permit, err := e.enter(ctx, "k", 99, time.Minute)
						if err != nil {
							continue
						}
						if n := running.Add(1); !e.killed() {
							most.Store(max(most.Load(), n))
						}
						time.Sleep(time.Duration(pauses.Int64N(int64(longest))))
						running.Add(-1)
						done.Add(1)
						permit.Leave()
					}
				})
			}
			rest := func(what string) {
				time.Sleep(500*time.Millisecond + skipTime + 6*longest) // the former owner's queue is empty by then
				if n := most.Load(); n > 2*limit {
					t.Errorf("seed %d, %s: %d requests at a time", seed, what, n)
				}
				most.Store(0)
				time.Sleep(2 * time.Second)
				if n := most.Load(); n != limit {
					t.Errorf("seed %d, at rest after %s: up to %d requests at a time", seed, what, n)
				}
			}
			rest("the start")
			for range 6 {
				e, drains := edges[random.IntN(2)], random.IntN(2) == 0
				learn := func(reports, draining bool) {
					for _, other := range edges {
						delay := time.Duration(random.IntN(500)) * time.Millisecond
						time.AfterFunc(delay, func() { other.learns(e.Edge, reports, draining) })
					}
				}
				if drains {
					learn(true, true)
					rest("a drain")
					learn(true, false)
					rest("its end")
					continue
				}
				e.kill()
				rest("a kill")
				learn(false, false)
				rest("the end of its report")
				e.start(t, e.Edge, limit)
				learn(true, false)
				rest("its start")
			}
			stop()
			all.Wait()
			if done.Load() < 1000 {
				t.Errorf("seed %d: %d requests", seed, done.Load())
			}
		})
	}
}
