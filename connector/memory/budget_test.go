package memory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// grow grows a reservation, and checks whether that succeeds.
func grow(t *testing.T, what string, r *Reservation, n int64, ok bool) {
	t.Helper()
	if err := r.Set(r.bytes + n); (err == nil) != ok || err != nil && !errors.Is(err, ErrExceeded) {
		t.Errorf("%s, %d more: %v", what, n, err)
	}
}

func TestShares(t *testing.T) {
	b := NewBudget(6400) // 100 are guaranteed to each key
	first := b.Open("a", "a", "k1")
	grow(t, "two thirds for one request of an account", &first, 4266, true)
	grow(t, "more than that", &first, 1, false)
	second := b.Open("a", "a", "k1")
	grow(t, "another request of the key", &second, 50, false)
	other := b.Open("a", "a", "k2")
	grow(t, "the guarantee of the account's other key", &other, 100, true)
	grow(t, "more than that", &other, 1, false)
	newcomer := b.Open("b", "b", "k3")
	grow(t, "two thirds of what is left, for another account", &newcomer, 1356, true)
	grow(t, "more than that", &newcomer, 1, false)
	if got := b.Stats(); got.Reserved != 4266+100+1356 || got.OverShare != 4 || got.Full != 0 {
		t.Errorf("%+v", got)
	}
	first.Release()
	grow(t, "after a release", &other, 1000, true)
	for _, r := range []*Reservation{&first, &second, &other, &newcomer} {
		r.Release()
	}
	if got := b.Stats().Reserved; got != 0 || len(b.shares) != 0 {
		t.Errorf("%d bytes are reserved in the end, by %d owners", got, len(b.shares))
	}
}

// A key with several requests may reserve as much as stays free.
func TestKeyThreshold(t *testing.T) {
	b := NewBudget(6400)
	requests := make([]Reservation, 64)
	reserved := int64(0)
	for i := range requests {
		requests[i] = b.Open("a", "a", "k")
		if requests[i].Set(100) == nil {
			reserved += 100
		}
	}
	if reserved != 3200 {
		t.Errorf("one key has reserved %d of 6400", reserved)
	}
}

// A user with many keys gets no more than a user with one, and leaves bytes to others.
func TestOwnerWithManyKeys(t *testing.T) {
	for name, size := range map[string]int64{"small requests": 100, "large ones": 1000} {
		b := NewBudget(64_000) // 1000 are guaranteed to each owner
		reserved := int64(0)
		for i := range 500 {
			for range 3 {
				r := b.Open("a", "many", fmt.Sprint("k", i))
				if r.Set(size) == nil {
					reserved += size
				}
			}
		}
		if reserved < 31_000 || reserved > 48_000 {
			t.Errorf("%s: a user with 500 keys has reserved %d of 64000", name, reserved)
		}
		for _, account := range []string{"a", "b"} {
			for i := range 4 {
				r := b.Open(account, fmt.Sprint("user", i), "key")
				grow(t, name+": another user", &r, 1000, true)
			}
			r := b.Open(account, account, "key")
			grow(t, name+": a key without a user", &r, 1000, true)
		}
	}
}

func TestFull(t *testing.T) {
	b := NewBudget(1000)
	alone := b.Open("", "", "")
	grow(t, "all, without an owner", &alone, 1000, true)
	r := b.Open("a", "a", "k")
	grow(t, "the guarantee, of a full budget", &r, 1, false)
	b.Resize(2000)
	grow(t, "after it was made larger", &r, 31, true)
	b.Resize(500)
	grow(t, "after it was made smaller", &r, 1, false)
	if err := r.Set(5); err != nil {
		t.Errorf("less: %v", err)
	}
	if got := b.Stats(); got.Total != 500 || got.Reserved != 1005 || got.Full != 2 {
		t.Errorf("%+v", got)
	}
	var unbounded Reservation
	grow(t, "of no budget", &unbounded, 1<<60, true)
	unbounded.Release()
}

// Concurrent reservations never exceed the total, and leave no state.
func TestConcurrentUse(t *testing.T) {
	b := NewBudget(100_000)
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for i := range 2000 {
				r := b.Open(fmt.Sprint("a", worker%3), fmt.Sprint("u", i%2), fmt.Sprint("k", i%5))
				for range 5 {
					_ = r.Set(random.Int64N(30_000))
				}
				if s := b.Stats(); s.Reserved > s.Total || s.Reserved < 0 {
					t.Errorf("%+v", s)
				}
				r.Release()
			}
		})
	}
	all.Wait()
	if s := b.Stats(); s.Reserved != 0 || len(b.shares) != 0 {
		t.Errorf("%+v, %d owners", s, len(b.shares))
	}
}

func TestReservationDoesNotAllocate(t *testing.T) {
	b := NewBudget(1 << 20)
	if n := testing.AllocsPerRun(100, func() {
		r := b.Open("a", "a", "k")
		if r.Set(1000) != nil {
			t.Error("refused")
		}
		r.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A cache gets an eighth of the budget, and gives it back when a reservation needs it.
func TestCache(t *testing.T) {
	b, size := NewBudget(800), int64(0)
	b.Cache(func() { size -= max(b.Excess(size), 0) })
	if b.Excess(101) != 1 || b.Excess(100) > 0 {
		t.Errorf("%d bytes over an eighth", b.Excess(101))
	}
	size = 100
	r := b.Open("", "", "")
	for _, step := range []struct{ reserved, cached int64 }{{700, 100}, {760, 40}, {800, 0}} {
		if err := r.Set(step.reserved); err != nil || size != step.cached {
			t.Errorf("%d are reserved: %v, the cache has %d", step.reserved, err, size)
		}
	}
}
