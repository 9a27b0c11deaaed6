package fair

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Delays are the delays of [Attempts]. Some failures are free, because people mistype. Each further
// one doubles the delay of the next attempt.
type Delays struct {
	Free   int           // failures without a delay
	First  time.Duration // delay after these
	Max    time.Duration // maximum delay
	Forget time.Duration // after the last failure
	// Size bounds the entries. A flood displaces the oldest failures, each by a new one.
	Size int
	// Edges divides the rate of failures among the edges of a cluster, each of which has Attempts of its own.
	Edges Edges
}

// Edges returns the number of edges of a cluster that share a limit. It must be fast. nil: the gateway is alone.
type Edges func() int

// Count returns the number, which is 1 at least.
func (e Edges) Count() int {
	if e == nil {
		return 1
	}
	return max(e(), 1)
}

// Attempts delays clients K that fail too often.
type Attempts[K comparable] struct {
	delays Delays

	mu      sync.Mutex
	entries *simplelru.LRU[K, *failures] // the last failure is the newest
}

type failures struct {
	count int
	last  time.Time
}

// NewAttempts returns attempts without failures.
func NewAttempts[K comparable](d Delays) *Attempts[K] {
	entries, _ := simplelru.NewLRU[K, *failures](d.Size, nil) // no error: the size is positive
	return &Attempts[K]{delays: d, entries: entries}
}

// get returns the failures of key that are not forgotten. The caller holds the lock.
func (a *Attempts[K]) get(key K, now time.Time) failures {
	f, ok := a.entries.Peek(key)
	if !ok || now.Sub(f.last) >= a.delays.Forget {
		return failures{}
	}
	return *f
}

// Wait returns how long key must still wait.
func (a *Attempts[K]) Wait(key K, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.get(key, now)
	edges := a.delays.Edges.Count()
	doublings := f.count - (a.delays.Free+edges)/edges // of the failures up to the first delay, an edge has its share
	if doublings < 0 {
		return 0
	}
	// More doublings would overflow; these exceed every maximum.
	delay := min(a.delays.First<<min(doublings, 20), a.delays.Max) * time.Duration(edges)
	return max(0, f.last.Add(delay).Sub(now))
}

// Fail counts one failure of key.
func (a *Attempts[K]) Fail(key K, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		_, oldest, ok := a.entries.GetOldest()
		if !ok || now.Sub(oldest.last) < a.delays.Forget {
			break
		}
		a.entries.RemoveOldest()
	}
	a.entries.Add(key, &failures{a.get(key, now).count + 1, now})
}

// Forgive drops n failures of key, or all of them if n is negative. It returns the number
// dropped.
func (a *Attempts[K]) Forgive(key K, n int) (dropped int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, ok := a.entries.Peek(key)
	switch {
	case !ok:
		return 0
	case n < 0 || n >= f.count:
		a.entries.Remove(key)
		return f.count
	}
	f.count -= n
	return n
}
