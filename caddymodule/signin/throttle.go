package signin

import (
	"sync"
	"time"
)

// Back-off: some failures are free, since people mistype. Each further failure
// doubles the delay of the next attempt.
const (
	freeFailures = 5
	siteFailures = 40 // of a /48 or /56, which may have many users
	firstDelay   = time.Second
	addressDelay = 15 * time.Minute // maximum
	// userDelay is the maximum for users and sites. It is short because others can
	// cause it: with 15 minutes, anyone who knows a name could lock its owner out.
	userDelay  = 30 * time.Second
	forgetting = time.Hour // after the last failure
	// maxEntries bounds each table. A flood can displace the oldest failures, but
	// only by as many new ones.
	maxEntries = 10_000
)

// throttle counts failures by K.
type throttle[K comparable] struct {
	most time.Duration // maximum delay
	free int           // failures without a delay

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

// wait returns how long key must still wait.
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
		// More doublings would overflow; these exceed every maximum.
		f.until = now.Add(min(firstDelay<<min(doublings, 20), t.most))
	}
}

// forgive drops n failures of key, or all of them if n is negative. It returns the
// number dropped.
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
