package signin

import (
	"sync"
	"time"
)

// Back-off: some failures are free, since people mistype; each one after them
// makes the next attempt wait twice as long as the one before.
const (
	freeFailures = 5
	siteFailures = 40 // of a /48 or /56, where there are many who mistype
	firstDelay   = time.Second
	addressDelay = 15 * time.Minute // at most
	// A user, or a site, waits no longer than this, since others cause it: with 15 minutes,
	// a client that knows a name could keep its owner out.
	userDelay  = 30 * time.Second
	forgetting = time.Hour // after the last failure
	// maxEntries bounds each table. A flood makes it drop the failures longest ago,
	// at the price of as many failures.
	maxEntries = 10_000
)

// throttle counts failures by K.
type throttle[K comparable] struct {
	most time.Duration // that one has to wait
	free int           // failures

	mu      sync.Mutex
	entries recent[K, *failures]
}

type failures struct {
	count int
	last  time.Time
	until time.Time
}

func newThrottle[K comparable](most time.Duration, free int) *throttle[K] {
	return &throttle[K]{most: most, free: free, entries: recent[K, *failures]{life: forgetting, size: maxEntries}}
}

// wait returns how long key still has to wait.
func (t *throttle[K]) wait(key K, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f, ok := t.entries.get(key); ok {
		return max(0, f.until.Sub(now))
	}
	return 0
}

// failed counts one failure of key.
func (t *throttle[K]) failed(key K, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.entries.get(key)
	if !ok || now.Sub(f.last) >= forgetting {
		f = new(failures)
	}
	t.entries.set(key, f, now)
	f.count++
	f.last = now
	if doublings := f.count - t.free - 1; doublings >= 0 {
		// More doublings than these overflow, and reach every maximum.
		f.until = now.Add(min(firstDelay<<min(doublings, 20), t.most))
	}
}

// forgive takes back n failures of key, all of them if n is negative.
func (t *throttle[K]) forgive(key K, n int) (taken int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.entries.get(key)
	switch {
	case !ok:
		return 0
	case n < 0 || n >= f.count:
		t.entries.remove(key)
		return f.count
	}
	f.count -= n
	return n
}
