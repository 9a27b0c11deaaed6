package fair

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowd lets clients enter, and records their permits.
type crowd struct {
	*testing.T
	*Permits
	mu    sync.Mutex
	order []string // of clients that got a permit after waiting
	away  []error  // of clients that did not get one
	has   map[Client][]Permit
}

func newCrowd(t *testing.T, total int) *crowd {
	return &crowd{T: t, Permits: NewPermits(total), has: make(map[Client][]Permit)}
}

// enter takes up to n permits for a client, without waiting.
func (c *crowd) enter(owner, key string, n int) (got int) {
	for ; got < n; got++ {
		p, err := c.Enter(c.Context(), Client{owner, key}, 0)
		if err != nil {
			break
		}
		c.has[Client{owner, key}] = append(c.has[Client{owner, key}], p)
	}
	return got
}

func (c *crowd) expect(what string, got, want int) {
	c.Helper()
	if got != want {
		c.Errorf("%s: %d, want %d", what, got, want)
	}
}

// wait lets a client wait for n permits, one after the other.
func (c *crowd) wait(ctx context.Context, owner, key string, n int, d time.Duration) {
	for range n {
		go func() {
			p, err := c.Enter(ctx, Client{owner, key}, d)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.away = append(c.away, err)
				return
			}
			c.order = append(c.order, owner+key)
			c.has[Client{owner, key}] = append(c.has[Client{owner, key}], p)
		}()
		synctest.Wait()
	}
}

// leave releases n permits of a client.
func (c *crowd) leave(owner, key string, n int) {
	for range n {
		c.mu.Lock()
		permits := c.has[Client{owner, key}]
		c.has[Client{owner, key}] = permits[1:]
		c.mu.Unlock()
		permits[0].Leave()
		synctest.Wait()
	}
}

// empty releases all permits, and expects that no state is left.
func (c *crowd) empty() {
	c.Helper()
	for client, permits := range c.has {
		c.leave(client.Owner, client.Key, len(permits))
	}
	expectEmpty(c.T, c.Permits)
}

// expectEmpty expects that no state of clients is left.
func expectEmpty(t *testing.T, p *Permits) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken != 0 || len(p.owners)+len(p.keys)+p.turns.Len() != 0 {
		t.Errorf("%d permits are taken in the end, %d owners, %d keys, %d wait", p.taken, len(p.owners), len(p.keys),
			p.turns.Len())
	}
}

// waiting returns the number of waiters.
func (c *crowd) waiting() int {
	c.Permits.mu.Lock()
	defer c.Permits.mu.Unlock()
	return c.turns.Len()
}

// One key gets all but the last eighth, of which others get some.
func TestPermitsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for total, want := range map[int]int{1: 1, 15: 15, 16: 14, 24: 21, 1024: 896} {
			c := newCrowd(t, total)
			c.expect(fmt.Sprintf("one key, of %d", total), c.enter("a", "1", 2000), want)
			c.wait(t.Context(), "a", "1", 200, time.Minute)
			if total >= scarceFrom {
				c.expect("another key of the owner", c.enter("a", "2", 1), 1)
				c.expect("a key of another owner", c.enter("b", "3", 1), 1)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			c.expect("refused after a minute", len(c.away), 200)
			for _, err := range c.away {
				if !errors.Is(err, ErrBusy) {
					t.Fatal(err)
				}
			}
			c.empty()
		}
	})
}

// An owner with a thousand keys leaves permits to other owners, and each of these to the next one.
func TestPermitsOfOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1024)
		got := 0
		for i := range 1000 {
			got += c.enter("a", fmt.Sprint(i), 2)
		}
		c.expect("an owner with a thousand keys", got, 960)
		for _, want := range []int{32, 16, 8, 4, 2, 1, 1, 0} {
			owner := fmt.Sprint("owner", want, len(c.has))
			got := 0
			for i := range 100 {
				got += c.enter(owner, fmt.Sprint(owner, i), 1)
			}
			c.expect("the next owner", got, want)
		}
		c.empty()
	})
}

// A released permit goes to the owner with the fewest, then to its key with the fewest, and among
// equals in turn.
func TestFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 12)
		c.enter("a", "1", 8)
		c.enter("a", "2", 1)
		c.enter("b", "3", 3)
		gone, leave := context.WithCancelCause(t.Context())
		c.wait(t.Context(), "a", "1", 2, time.Minute)
		c.wait(gone, "b", "3", 1, time.Minute)
		c.wait(t.Context(), "a", "2", 2, time.Minute)
		c.wait(t.Context(), "b", "3", 2, time.Minute)
		c.wait(t.Context(), "b", "4", 1, time.Minute)
		why := errors.New("the key was revoked")
		leave(why)
		synctest.Wait()
		if len(c.away) != 1 || !errors.Is(c.away[0], why) {
			t.Errorf("refused: %v", c.away)
		}
		c.leave("a", "1", 6)
		if got, want := fmt.Sprint(c.order), "[b4 b3 b3 a2 a2 a1]"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		c.empty()

		one := newCrowd(t, 1) // all have none when it is released
		one.enter("x", "x", 1)
		one.wait(t.Context(), "a", "1", 3, time.Minute)
		one.wait(t.Context(), "b", "2", 2, time.Minute)
		one.leave("x", "x", 1)
		for _, client := range []string{"a1", "b2", "a1", "b2"} {
			one.leave(client[:1], client[1:], 1)
		}
		if got, want := fmt.Sprint(one.order), "[a1 b2 a1 b2 a1]"; got != want {
			t.Errorf("order of one permit %s, want %s", got, want)
		}
		one.empty()
	})
}

// Others displace requests of an owner that fills the queue.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1)
		c.enter("x", "x", 1)
		for i := range maxWaiting {
			c.wait(t.Context(), "a", fmt.Sprint(i%500), 1, time.Minute)
		}
		c.wait(t.Context(), "a", "new", 1, time.Minute) // displaces one of a key with three
		c.wait(t.Context(), "b", "1", 3, time.Minute)
		c.expect("displaced", len(c.away), 4)
		c.expect("waiting", c.waiting(), maxWaiting)
		time.Sleep(time.Minute)
		synctest.Wait()
		c.empty()
	})
}

// Concurrent clients never exceed the total, and leave no state.
func TestPermitsConcurrently(t *testing.T) {
	const total = 20
	p := NewPermits(total)
	var all sync.WaitGroup
	for worker := range 64 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for i := range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(300))*time.Microsecond)
				c := Client{fmt.Sprint(worker % 3), fmt.Sprint(worker % 9)}
				permit, err := p.Enter(ctx, c, time.Duration(i%2)*time.Millisecond)
				if err == nil {
					p.mu.Lock()
					if p.taken > total {
						t.Errorf("%d permits are taken", p.taken)
					}
					p.mu.Unlock()
					permit.Leave()
				}
				cancel()
			}
		})
	}
	all.Wait()
	expectEmpty(t, p)
}

func TestPermitsAllocateNothing(t *testing.T) {
	p := NewPermits(64)
	if n := testing.AllocsPerRun(100, func() {
		permit, err := p.Enter(t.Context(), Client{"usr_1", "key_1"}, time.Minute)
		if err != nil {
			t.Error(err)
		}
		permit.Leave()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPermits(b *testing.B) {
	p := NewPermits(1024)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			permit, _ := p.Enter(b.Context(), Client{"usr_06b3kz9v6dfx7fbv7wq7m5r2qm", "key_06b3kz9v6dfx7fbv7wq7m5r2qm"}, 0)
			permit.Leave()
		}
	})
}
