package signin

import (
	"container/list"
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
	// maxEntries bounds each table. A flood makes it drop the failures
	// longest ago, at the price of as many failures.
	maxEntries = 10_000
)

// throttle counts failures by K.
type throttle[K comparable] struct {
	most time.Duration // that one has to wait
	free int           // failures

	mu      sync.Mutex
	entries map[K]*list.Element
	order   list.List // of *failures[K], the last to fail first
}

type failures[K comparable] struct {
	key   K
	count int
	last  time.Time
	until time.Time
}

func newThrottle[K comparable](most time.Duration, free int) *throttle[K] {
	return &throttle[K]{most: most, free: free, entries: map[K]*list.Element{}}
}

// wait returns how long key still has to wait.
func (t *throttle[K]) wait(key K, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok {
		return max(0, e.Value.(*failures[K]).until.Sub(now))
	}
	return 0
}

// failed counts one failure of key.
func (t *throttle[K]) failed(key K, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	e, ok := t.entries[key]
	if !ok {
		if len(t.entries) >= maxEntries {
			t.remove(t.order.Back())
		}
		e = t.order.PushFront(&failures[K]{key: key})
		t.entries[key] = e
	}
	t.order.MoveToFront(e)
	f := e.Value.(*failures[K])
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
	e, ok := t.entries[key]
	if !ok {
		return 0
	}
	f := e.Value.(*failures[K])
	if n < 0 || n >= f.count {
		t.remove(e)
		return f.count
	}
	f.count -= n
	return n
}

// expire drops what has been quiet for long enough. The oldest are at the
// back, but for clocks that are set back.
func (t *throttle[K]) expire(now time.Time) {
	for e := t.order.Back(); e != nil && now.Sub(e.Value.(*failures[K]).last) >= forgetting; e = t.order.Back() {
		t.remove(e)
	}
}

func (t *throttle[K]) remove(e *list.Element) {
	t.order.Remove(e)
	delete(t.entries, e.Value.(*failures[K]).key)
}
