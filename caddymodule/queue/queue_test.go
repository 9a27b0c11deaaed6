package queue_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/queue"
)

// client is a key without a user.
func client(key string) fair.Client { return fair.Client{Owner: "default", Key: key} }

func name() queue.Name { return queue.Name{Account: "default", Deployment: "m"} }

// hall is a deployment's queue, with a record of its requests.
type hall struct {
	*queue.Queues
	t     *testing.T
	limit atomic.Int64

	mu      sync.Mutex
	order   []string // of requests with a permit
	refused []string // requests without one, with the reason
	permits []queue.Permit
}

func newHall(t *testing.T, limit int) *hall {
	h := &hall{t: t}
	h.limit.Store(int64(limit))
	h.Queues = queue.New(func(queue.Name) int { return int(h.limit.Load()) })
	return h
}

// come sends requests one after the other, and returns when each of them
// runs, waits, or was refused. The key is the part of a request before "/".
func (h *hall) come(ctx context.Context, b queue.Bounds, requests ...string) {
	for _, r := range requests {
		go func() {
			p, err := h.Enter(ctx, name(), client(r[:1]), b)
			h.mu.Lock()
			defer h.mu.Unlock()
			if err != nil {
				h.refused = append(h.refused, r+": "+err.Error())
				return
			}
			h.order, h.permits = append(h.order, r), append(h.permits, p)
		}()
		synctest.Wait()
	}
}

// leave ends the request that has had its permit for the longest time.
func (h *hall) leave() {
	h.mu.Lock()
	p := h.permits[0]
	h.permits = h.permits[1:]
	h.mu.Unlock()
	p.Leave()
	synctest.Wait()
}

func (h *hall) expect(what string, got *[]string, want ...string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(*got, want) {
		h.t.Errorf("%s: %q, want %q", what, *got, want)
	}
}

func (h *hall) waiting() (n int) {
	h.Lengths(func(_ queue.Name, waiting int) { n += waiting })
	return n
}

// A key with many requests gets no more turns than one with few, and the
// requests of each run in the order of their arrival.
func TestRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		h.come(t.Context(), queue.Bounds{}, "a1", "a2", "a3", "a4", "b1", "b2", "c1")
		h.expect("at first", &h.order, "a1")
		if running, waiting := h.Load("default", "m"); h.waiting() != 6 || running != 1 || waiting != 6 {
			t.Errorf("%d run and %d wait, want 1 and 6", running, waiting)
		}
		for range 6 {
			h.leave()
		}
		h.expect("order", &h.order, "a1", "a2", "b1", "c1", "a3", "b2", "a4")
		h.leave()
		h.come(t.Context(), queue.Bounds{}, "z1")
		h.expect("refused", &h.refused)
		if n := h.waiting(); n != 0 || len(h.permits) != 1 {
			t.Errorf("%d wait, %d run in the end", n, len(h.permits))
		}
	})
}

// An owner with many keys gets no more turns, and no more of the queue, than one with few.
func TestOwnersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		b := queue.Bounds{Length: 6}
		for _, of := range []string{"v0", "u1", "u2", "u3", "u4", "u5", "u5", "v1", "v1", "u6"} {
			go func() {
				p, err := h.Enter(t.Context(), name(), fair.Client{Owner: of[:1], Key: of}, b)
				h.mu.Lock()
				defer h.mu.Unlock()
				if err != nil {
					h.refused = append(h.refused, of)
					return
				}
				h.order, h.permits = append(h.order, of), append(h.permits, p)
			}()
			synctest.Wait()
		}
		h.expect("refused", &h.refused, "u5", "u5", "u6")
		for range 7 {
			h.leave()
		}
		h.expect("order", &h.order, "v0", "u1", "v1", "u2", "v1", "u3", "u4")
	})
}

// A key that floods the queue cannot keep others out: they displace its newest requests.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		b := queue.Bounds{Length: 3}
		h.come(t.Context(), b, "a1", "a2", "a3", "a4", "a5")
		h.expect("one key alone", &h.refused, "a5: "+queue.ErrFull.Error())
		h.come(t.Context(), b, "b1", "b2", "c1")
		h.expect("three keys", &h.refused, "a5: "+queue.ErrFull.Error(), "a4: "+queue.ErrFull.Error(),
			"b2: "+queue.ErrFull.Error(), "a3: "+queue.ErrFull.Error())
		for range 3 {
			h.leave()
		}
		h.expect("order", &h.order, "a1", "a2", "b1", "c1")
		h.come(t.Context(), queue.Bounds{Length: -1}, "d1")
		h.expect("without a queue", &h.refused, "a5: "+queue.ErrFull.Error(), "a4: "+queue.ErrFull.Error(),
			"b2: "+queue.ErrFull.Error(), "a3: "+queue.ErrFull.Error(), "d1: "+queue.ErrFull.Error())
		h.leave()
	})
}

// A request that must not wait does not displace another one from the queue.
func TestWithoutWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		h.come(t.Context(), queue.Bounds{}, "a1", "a2", "a3")
		h.come(t.Context(), queue.Bounds{Length: -1}, "b1")
		h.expect("refused", &h.refused, "b1: "+queue.ErrFull.Error())
		for range 3 {
			h.leave()
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		h.come(t.Context(), queue.Bounds{Wait: 10 * time.Second}, "a1", "a2")
		h.come(t.Context(), queue.Bounds{}, "a3")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		h.expect("before its time", &h.refused)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		h.expect("after 11 s", &h.refused, "a2: "+queue.ErrTimeout.Error())
		time.Sleep(queue.DefaultWait)
		synctest.Wait()
		h.expect("after the default", &h.refused, "a2: "+queue.ErrTimeout.Error(), "a3: "+queue.ErrTimeout.Error())
		h.leave()
		h.come(t.Context(), queue.Bounds{}, "b1")
		h.expect("order", &h.order, "a1", "b1")
	})
}

// A client that disconnects leaves the queue, with the cause of its context.
func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		h.come(t.Context(), queue.Bounds{}, "a1")
		h.come(ctx, queue.Bounds{}, "b1")
		h.come(t.Context(), queue.Bounds{}, "c1")
		cancel(errors.New("the key was revoked"))
		synctest.Wait()
		h.expect("refused", &h.refused, "b1: the key was revoked")
		if n := h.waiting(); n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		h.leave()
		h.expect("order", &h.order, "a1", "c1")
	})
}

// A changed limit is in force at once, for waiting requests, too. Running requests count, even if they
// began without a limit.
func TestChangedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0)
		h.come(t.Context(), queue.Bounds{}, "a1", "a2", "a3")
		h.limit.Store(2)
		h.Changed(name())
		h.come(t.Context(), queue.Bounds{}, "b1", "b2", "b3")
		h.leave()
		h.expect("more run than may", &h.order, "a1", "a2", "a3")
		h.leave()
		h.expect("one has left", &h.order, "a1", "a2", "a3", "b1")
		h.limit.Store(3)
		h.Changed(name())
		synctest.Wait()
		h.expect("raised", &h.order, "a1", "a2", "a3", "b1", "b2")
		h.limit.Store(0)
		h.Remove(name())
		synctest.Wait()
		h.expect("removed", &h.order, "a1", "a2", "a3", "b1", "b2", "b3")
		for range 4 {
			h.leave()
		}
	})
}

// Many requests arrive at once, clients leave, and the limit changes. The limit is never exceeded, all
// requests end, and no permit is lost.
func TestConcurrent(t *testing.T) {
	const limit, keys, each = 4, 8, 300
	q := queue.New(func(queue.Name) int { return limit })
	var running, maximum, done atomic.Int64
	var wg sync.WaitGroup
	for k := range keys {
		for range 8 {
			wg.Go(func() {
				for i := range each {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if i%3 == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Microsecond)
					}
					p, err := q.Enter(ctx, name(), client(fmt.Sprint(k)), queue.Bounds{Length: 40})
					if err == nil {
						if n := running.Add(1); n > maximum.Load() {
							maximum.Store(n)
						}
						done.Add(1)
						running.Add(-1)
						p.Leave()
					}
					cancel()
				}
			})
		}
	}
	wg.Wait()
	if maximum.Load() > limit {
		t.Errorf("%d ran at a time, the limit is %d", maximum.Load(), limit)
	}
	// All permits are free again.
	for range limit {
		if p, err := q.Enter(t.Context(), name(), client("x"), queue.Bounds{Length: -1}); err != nil || p.Waited() {
			t.Fatalf("a permit was lost: %v", err)
		}
	}
	if done.Load() == 0 {
		t.Error("nothing ran")
	}
	q.Lengths(func(_ queue.Name, waiting int) {
		if waiting != 0 {
			t.Errorf("%d wait in the end", waiting)
		}
	})
}

// Each of two keys gets half of the turns, whatever they send.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(func(queue.Name) int { return 2 })
		var few, many atomic.Int64
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Second)
		defer stop()
		client := func(key string, served *atomic.Int64) {
			for ctx.Err() == nil {
				p, err := q.Enter(ctx, name(), client(key), queue.Bounds{})
				if err != nil {
					continue
				}
				time.Sleep(time.Second)
				served.Add(1)
				p.Leave()
			}
		}
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() { client("many", &many) })
		}
		for range 3 {
			wg.Go(func() { client("few", &few) })
		}
		wg.Wait()
		if a, b := few.Load(), many.Load(); a < 95 || b < 95 {
			t.Errorf("three clients of one key had %d turns, 30 of another %d; want 100 each", a, b)
		}
	})
}

func BenchmarkUnbounded(b *testing.B) {
	q := queue.New(func(queue.Name) int { return 0 })
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, _ := q.Enter(ctx, name(), client("key"), queue.Bounds{})
			p.Leave()
		}
	})
}

func TestUnboundedAllocatesNothing(t *testing.T) {
	q := queue.New(func(queue.Name) int { return 0 })
	n := testing.AllocsPerRun(100, func() {
		p, _ := q.Enter(t.Context(), name(), client("key"), queue.Bounds{})
		p.Leave()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The first requests of n deployments need linear time and memory.
func TestManyDeployments(t *testing.T) {
	const n, limit = 4000, 1024 // bytes for each
	q := queue.New(func(queue.Name) int { return 0 })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		p, _ := q.Enter(t.Context(), queue.Name{Account: "default", Deployment: strconv.Itoa(i)}, client("key"),
			queue.Bounds{})
		p.Leave()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > limit {
		t.Errorf("each of %d deployments allocated %d bytes, want at most %d", n, each, limit)
	}
}
