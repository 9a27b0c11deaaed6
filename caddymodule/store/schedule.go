package store

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/wait"
)

// expiryNotices are the times before the expiry of a key at which subscribers get a notice, the
// longest first.
var expiryNotices = [...]time.Duration{ExpiryNotice, 24 * time.Hour}

// ExpiryNotice is how long before its expiry a key is first reported as expiring.
const ExpiryNotice = 7 * 24 * time.Hour

// scheduleCheck bounds the waits of the schedule, so that it notices when the clock was set.
const scheduleCheck = time.Minute

// schedule has the keys that will change by time alone, ordered by their next such change. One
// timer serves all. Other keys cost nothing.
type schedule struct {
	mu      sync.Mutex
	keys    keyHeap
	earlier chan struct{} // capacity 1: the first time is earlier than before
}

// due returns the time of the next change of a key by time alone: its previous secret ends, it
// expires, or a notice of that is due.
func (r *keyRecord) due(now time.Time) (next time.Time, ok bool) {
	consider := func(t time.Time) {
		if t.After(now) && (!ok || t.Before(next)) {
			next, ok = t, true
		}
	}
	if r.RevokedAt != nil {
		return time.Time{}, false
	}
	if r.Previous != nil {
		consider(r.Previous.Until)
	}
	if r.ExpiresAt != nil {
		consider(*r.ExpiresAt)
		for _, notice := range expiryNotices {
			consider(r.ExpiresAt.Add(-notice))
		}
	}
	return next, ok
}

// set schedules the next change of a key after now.
func (s *schedule) set(k *LiveKey, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Read under the lock: the last of concurrent calls sees the latest record.
	due, ok := k.record.Load().due(now)
	k.due = due
	switch {
	case ok && k.position == 0:
		heap.Push(&s.keys, k)
	case ok:
		heap.Fix(&s.keys, k.position-1)
	case k.position > 0:
		heap.Remove(&s.keys, k.position-1)
	}
	if ok && s.keys[0] == k {
		wait.Wake(s.earlier, struct{}{})
	}
}

// reset empties the schedule, even if it is inconsistent.
func (s *schedule) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		k.position = 0
	}
	s.keys = nil
}

// first returns the key that changes first, nil if the schedule is empty, and when.
func (s *schedule) first() (k *LiveKey, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return nil, time.Time{}
	}
	return s.keys[0], s.keys[0].due
}

// expire ends the requests of keys and secrets when they expire, and notifies subscribers,
// until the context ends.
func (s *Store) expire(ctx context.Context) {
	for {
		k, due := s.schedule.first()
		var timer <-chan time.Time
		if k != nil {
			now := s.now()
			if !due.After(now) {
				s.schedule.set(k, now)
				k.review(now)
				s.notify(k.record.Load(), due, now)
				continue
			}
			timer = time.After(min(due.Sub(now), scheduleCheck))
		}
		select {
		case <-ctx.Done():
			return
		case <-s.schedule.earlier:
		case <-timer:
		}
	}
}

// notify notifies subscribers of the expiry of a key, or of the notice before it, that was due
// between due and now.
func (s *Store) notify(r *keyRecord, due, now time.Time) {
	passed := func(t time.Time) bool { return !t.Before(due) && !t.After(now) }
	if r.RevokedAt != nil || r.ExpiresAt == nil {
		return
	}
	c := Change{
		Kind: KindKey, Account: r.Account, ID: r.ID, Name: r.Name, State: r.state(), Was: r.state(),
		Revision: r.revision,
	}
	if passed(*r.ExpiresAt) {
		c.State = KeyExpired
	} else {
		for _, notice := range expiryNotices {
			if passed(r.ExpiresAt.Add(-notice)) {
				c.Expiring = notice
			}
		}
	}
	if c.State == KeyExpired || c.Expiring > 0 {
		s.report(s.subscribers.Now(), c)
	}
}

// keyHeap implements heap.Interface.
type keyHeap []*LiveKey

func (h keyHeap) Len() int           { return len(h) }
func (h keyHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h keyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].position, h[j].position = i+1, j+1
}

func (h *keyHeap) Push(k any) {
	*h = append(*h, k.(*LiveKey))
	(*h)[len(*h)-1].position = len(*h)
}

func (h *keyHeap) Pop() any {
	last := len(*h) - 1
	k := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	k.position = 0
	return k
}
