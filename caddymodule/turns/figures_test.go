package turns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// batch serves 300 requests of 8 keys for 3 models at a server with one slot, all at once in a random order. It returns
// the number of loads, the time, and the longest time for which a model with waiting requests was not loaded.
func batch(t *testing.T, oneModel bool) (loads int, total, longest time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.load, w.answer = 2*time.Second, 300*time.Millisecond
		w.SetSwapAfter(10 * time.Second)
		w.connect("c", 1, map[bool]string{true: "1u", false: "u"}[oneModel])
		for _, m := range []string{"A", "B", "C"} {
			w.deploy(m, m, 0, "c")
		}
		r := rand.New(rand.NewPCG(1, 1))
		waiting, since := map[string]int{}, map[string]time.Time{}
		w.started = func(model string) {
			for m, n := range waiting {
				if m == model {
					since[m] = time.Now()
				} else if n > 0 {
					longest = max(longest, time.Since(since[m]))
				}
			}
			waiting[model]--
			since[model] = time.Now().Add(w.answer)
		}
		for i := range 300 {
			m := string(rune('A' + r.IntN(3)))
			waiting[m]++
			since[m] = w.begun
			request := fmt.Sprintf("r%d o/%d %s wait=300", i, r.IntN(8), m)
			if !oneModel { // first in, first out
				request = fmt.Sprintf("r%d o/0 %s", i, m)
			}
			w.run(t.Context(), request)
			synctest.Wait()
		}
		w.wg.Wait()
		loads, total = w.loads, time.Since(w.begun)
		served := 0
		for _, n := range w.served {
			served += n
		}
		if served != 300 {
			t.Errorf("%d of 300 were served", served)
		}
		w.empty()
	})
	return loads, total, longest
}

func TestLoads(t *testing.T) {
	fifoLoads, fifo, _ := batch(t, false)
	loads, total, longest := batch(t, true)
	t.Logf("%d loads in %v; first in, first out: %d in %v; not loaded for %v", loads, total, fifoLoads, fifo, longest)
	if loads > fifoLoads/10 || total > fifo*2/5 {
		t.Errorf("%d loads in %v; first in, first out: %d in %v", loads, total, fifoLoads, fifo)
	}
	if bound := 2*(10*time.Second+2*time.Second+300*time.Millisecond) + 2*time.Second; longest > bound {
		t.Errorf("a model was not loaded for %v, more than %v", longest, bound)
	}
}

// A model with a waiting request of normal priority is loaded after at most 4 S, an answer and a load, in parallel
// with endless ones of high priority.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.load, w.answer = 2*time.Second, 3*time.Second
		w.SetSwapAfter(10 * time.Second)
		w.connect("c", 0, "1u")
		w.deploy("A", "A", 2, "c")
		w.deploy("B", "B", 2, "c")
		ctx, cancel := context.WithCancel(t.Context())
		var begun, came time.Time
		w.started = func(model string) {
			if model == "B" {
				begun = time.Now()
			}
		}
		for i := range 4 {
			w.wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					w.serve(ctx, fmt.Sprintf("h%d-%d o/%d A high", i, n, i))
				}
			})
		}
		w.at(7)
		came = time.Now()
		w.run(ctx, "n p B")
		w.at(100)
		cancel()
		w.wg.Wait()
		if d := begun.Sub(came) + w.load; begun.IsZero() || d > 4*10*time.Second+w.answer+w.load {
			t.Errorf("the model was loaded after %v", d)
		}
		w.empty()
	})
}

// Keys of one owner, and owners with one key, get as many answers in the same time, however many requests each has.
func TestShares(t *testing.T) {
	for _, client := range []string{"o/%d", "o%d"} {
		for _, server := range []string{"u", "1u"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.load, w.answer = 2*time.Second, 300*time.Millisecond
				w.connect("c", 0, server)
				w.deploy("A", "A", 2, "c")
				ctx, cancel := context.WithCancel(t.Context())
				for i := range 40 { // 1 + 2 + … of the clients
					n := min(i/4, 3)
					w.wg.Go(func() {
						for j := 0; ctx.Err() == nil; j++ {
							w.serve(ctx, fmt.Sprintf("r%d-%d "+client+" A", i, j, n))
						}
					})
				}
				time.Sleep(200 * time.Second)
				cancel()
				w.wg.Wait()
				low, high := 1<<30, 0
				for _, n := range w.served {
					low, high = min(low, n), max(high, n)
				}
				if len(w.served) != 4 || high*10 > low*11 {
					t.Errorf("answers by client: %v", w.served)
				}
				w.empty()
			})
		}
	}
}

// A request of high priority waits for at most one answer of 200 requests of low priority.
func TestHighPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = time.Second
		w.connect("c", 0, "u")
		w.deploy("A", "A", 2, "c")
		for i := range 200 {
			w.run(t.Context(), fmt.Sprintf("l%d batch A low", i))
			synctest.Wait()
		}
		for i := range 20 {
			time.Sleep(1234 * time.Millisecond)
			_, q := w.request("h person A high")
			p, err := w.Wait(t.Context(), q)
			if err != nil || p.Waited > w.answer {
				t.Errorf("%d: waited for %v: %v", i, p.Waited, err)
			}
			p.Leave()
		}
		w.wg.Wait()
		w.empty()
	})
}

// No place of two connectors is idle while a request waits that may go there.
func TestNoIdlePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answer = time.Second
		w.connect("c1", 2, "u")
		w.connect("c2", 20, "u")
		w.deploy("A", "A", 0, "c1", "c2")
		for i := range 220 {
			w.run(t.Context(), fmt.Sprintf("r%d o%d A", i, i%7))
		}
		w.wg.Wait()
		if d := time.Since(w.begun); d != 10*time.Second {
			t.Errorf("220 answers of a second at 22 places took %v", d)
		}
		w.empty()
	})
}

// A request that need not wait allocates its place and no more.
func TestAllocations(t *testing.T) {
	w := newWorld(t)
	w.connect("c1", 1, "u")
	w.connect("c2", 1, "u")
	w.deploy("D", "", 0, "c1", "c2")
	_, q := w.request("r a/1 D")
	q.Affinity = 7
	if n := testing.AllocsPerRun(1000, func() {
		p, err := w.Wait(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		p.Answered()
		p.Leave()
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}
