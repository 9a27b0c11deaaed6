package fair_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// client is a key without a user.
func client(key string) fair.Client { return fair.Client{Owner: "default", Key: key} }

// bounds are those of a request in a line.
type bounds struct {
	length int // 0: 64
	wait   time.Duration
}

// enter enters with defaults for bounds that are 0.
func enter(ctx context.Context, l *fair.Line, c fair.Client, b bounds) (waited bool, err error) {
	return l.Enter(ctx, c, cmp.Or(b.length, 64), cmp.Or(b.wait, time.Minute))
}

// hall is a line, with a record of its requests.
type hall struct {
	*fair.Line
	t     *testing.T
	limit atomic.Int64

	mu      sync.Mutex
	order   []string // of requests with a permit
	refused []string // requests without one, with the reason
}

func newHall(t *testing.T, limit int) *hall {
	h := &hall{t: t}
	h.limit.Store(int64(limit))
	h.Line = fair.NewLine(func() int { return int(h.limit.Load()) })
	return h
}

// come sends requests one after the other, and returns when each of them
// runs, waits, or was refused. The key is the part of a request before "/".
func (h *hall) come(ctx context.Context, b bounds, requests ...string) {
	for _, r := range requests {
		go func() {
			_, err := enter(ctx, h.Line, client(r[:1]), b)
			h.mu.Lock()
			defer h.mu.Unlock()
			if err != nil {
				h.refused = append(h.refused, r+": "+err.Error())
				return
			}
			h.order = append(h.order, r)
		}()
		synctest.Wait()
	}
}

// leave ends a request.
func (h *hall) leave() {
	h.Leave()
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

// A key with many requests gets no more turns than one with few, and the
// requests of each run in the order of their arrival.
func TestLineRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		h.come(t.Context(), bounds{}, "a1", "a2", "a3", "a4", "b1", "b2", "c1")
		h.expect("at first", &h.order, "a1")
		if h.Running() != 1 || h.Waiting() != 6 {
			t.Errorf("%d run and %d wait, want 1 and 6", h.Running(), h.Waiting())
		}
		for range 6 {
			h.leave()
		}
		h.expect("order", &h.order, "a1", "a2", "b1", "c1", "a3", "b2", "a4")
		h.leave()
		h.come(t.Context(), bounds{}, "z1")
		h.expect("refused", &h.refused)
		if h.Waiting() != 0 || h.Running() != 1 {
			t.Errorf("%d wait, %d run in the end", h.Waiting(), h.Running())
		}
	})
}

// An owner with many keys gets no more turns, and no more of the queue, than one with few.
func TestLineOwnersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		b := bounds{length: 6}
		for _, of := range []string{"v0", "u1", "u2", "u3", "u4", "u5", "u5", "v1", "v1", "u6"} {
			go func() {
				_, err := enter(t.Context(), h.Line, fair.Client{Owner: of[:1], Key: of}, b)
				h.mu.Lock()
				defer h.mu.Unlock()
				if err != nil {
					h.refused = append(h.refused, of)
					return
				}
				h.order = append(h.order, of)
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
func TestFullLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		b := bounds{length: 3}
		h.come(t.Context(), b, "a1", "a2", "a3", "a4", "a5")
		h.expect("one key alone", &h.refused, "a5: "+fair.ErrFull.Error())
		h.come(t.Context(), b, "b1", "b2", "c1")
		h.expect("three keys", &h.refused, "a5: "+fair.ErrFull.Error(), "a4: "+fair.ErrFull.Error(),
			"b2: "+fair.ErrFull.Error(), "a3: "+fair.ErrFull.Error())
		for range 3 {
			h.leave()
		}
		h.expect("order", &h.order, "a1", "a2", "b1", "c1")
		h.come(t.Context(), bounds{length: -1}, "d1")
		h.expect("without a queue", &h.refused, "a5: "+fair.ErrFull.Error(), "a4: "+fair.ErrFull.Error(),
			"b2: "+fair.ErrFull.Error(), "a3: "+fair.ErrFull.Error(), "d1: "+fair.ErrFull.Error())
		h.leave()
	})
}

// A request that must not wait does not displace another one from the queue.
func TestLineWithoutWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		h.come(t.Context(), bounds{}, "a1", "a2", "a3")
		h.come(t.Context(), bounds{length: -1}, "b1")
		h.expect("refused", &h.refused, "b1: "+fair.ErrFull.Error())
		for range 3 {
			h.leave()
		}
	})
}

func TestLineTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		h.come(t.Context(), bounds{wait: 10 * time.Second}, "a1", "a2")
		h.come(t.Context(), bounds{}, "a3")
		time.Sleep(9 * time.Second)
		synctest.Wait()
		h.expect("before its time", &h.refused)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		h.expect("after 11 s", &h.refused, "a2: "+fair.ErrTimeout.Error())
		time.Sleep(time.Minute)
		synctest.Wait()
		h.expect("after the default", &h.refused, "a2: "+fair.ErrTimeout.Error(), "a3: "+fair.ErrTimeout.Error())
		h.leave()
		h.come(t.Context(), bounds{}, "b1")
		h.expect("order", &h.order, "a1", "b1")
	})
}

// A client that disconnects leaves the queue, with the cause of its context.
func TestClientLeavesLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		h.come(t.Context(), bounds{}, "a1")
		h.come(ctx, bounds{}, "b1")
		h.come(t.Context(), bounds{}, "c1")
		cancel(errors.New("the key was revoked"))
		synctest.Wait()
		h.expect("refused", &h.refused, "b1: the key was revoked")
		if n := h.Waiting(); n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		h.leave()
		h.expect("order", &h.order, "a1", "c1")
	})
}

// A changed limit is in force at once, for waiting requests, too. Running requests count, even if they
// began without a limit.
func TestLineChangedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0)
		h.come(t.Context(), bounds{}, "a1", "a2", "a3")
		h.limit.Store(2)
		h.Advance()
		h.come(t.Context(), bounds{}, "b1", "b2", "b3")
		h.leave()
		h.expect("more run than may", &h.order, "a1", "a2", "a3")
		h.leave()
		h.expect("one has left", &h.order, "a1", "a2", "a3", "b1")
		h.limit.Store(3)
		h.Advance()
		synctest.Wait()
		h.expect("raised", &h.order, "a1", "a2", "a3", "b1", "b2")
		h.limit.Store(0)
		h.Advance()
		synctest.Wait()
		h.expect("without a limit", &h.order, "a1", "a2", "a3", "b1", "b2", "b3")
		for range 4 {
			h.leave()
		}
	})
}

// Many requests arrive at once, clients leave, and the limit changes. The limit is never exceeded, all
// requests end, and no permit is lost.
func TestLineConcurrently(t *testing.T) {
	const limit, keys, each = 4, 8, 300
	q := fair.NewLine(func() int { return limit })
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
					_, err := enter(ctx, q, client(fmt.Sprint(k)), bounds{length: 40})
					if err == nil {
						if n := running.Add(1); n > maximum.Load() {
							maximum.Store(n)
						}
						done.Add(1)
						running.Add(-1)
						q.Leave()
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
		if waited, err := enter(t.Context(), q, client("x"), bounds{length: -1}); err != nil || waited {
			t.Fatalf("a permit was lost: %v", err)
		}
	}
	if done.Load() == 0 {
		t.Error("nothing ran")
	}
	if n := q.Waiting(); n != 0 {
		t.Errorf("%d wait in the end", n)
	}
}

// Each of two keys gets half of the turns, whatever they send.
func TestSharesOfLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fair.NewLine(func() int { return 2 })
		var few, many atomic.Int64
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Second)
		defer stop()
		client := func(key string, served *atomic.Int64) {
			for ctx.Err() == nil {
				_, err := enter(ctx, q, client(key), bounds{})
				if err != nil {
					continue
				}
				time.Sleep(time.Second)
				served.Add(1)
				q.Leave()
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

func TestLineAllocatesNothing(t *testing.T) {
	q := fair.NewLine(func() int { return 0 })
	n := testing.AllocsPerRun(100, func() {
		_, _ = enter(t.Context(), q, client("key"), bounds{})
		q.Leave()
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
