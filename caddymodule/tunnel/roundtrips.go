package tunnel

import (
	"sync"
	"time"
)

// roundTripTime is how long a round trip counts at least. It counts at most twice as long.
const roundTripTime = time.Minute

// roundTrips keeps the shortest round trip of the last minutes.
type roundTrips struct {
	mu          sync.Mutex
	since       time.Time     // when now began
	now, before time.Duration // the shortest ones of this period and the one before
}

// shortest returns the shortest round trip, with a new one.
func (r *roundTrips) shortest(latest time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := time.Since(r.since); age > roundTripTime {
		r.since, r.before, r.now = time.Now(), r.now, latest
		if age > 2*roundTripTime {
			r.before = latest
		}
	}
	r.now = min(r.now, latest)
	return min(r.before, r.now)
}
