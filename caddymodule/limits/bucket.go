package limits

import "time"

// bucket is a token bucket for a limit per minute. It is full at first, with the amount of a minute.
// Its level is negative after more was taken than it contained.
type bucket struct {
	limit    int
	level    float64
	refilled time.Time
}

// refill adds the inflow since the last call. A changed limit takes effect at once.
func (b *bucket) refill(limit int, now time.Time) {
	if limit == 0 && b.limit == 0 {
		return
	}
	if b.limit != limit {
		b.level = min(b.level+float64(max(limit-b.limit, 0)), float64(limit))
		b.limit = limit
	}
	if elapsed := now.Sub(b.refilled); elapsed > 0 {
		b.level = min(b.level+elapsed.Minutes()*float64(limit), float64(limit))
	}
	b.refilled = now
}

// wait returns the time until n can be taken.
func (b *bucket) wait(n int64) time.Duration {
	if b.limit == 0 {
		return 0
	}
	return b.flow(float64(n) - b.level)
}

// full returns the time until the bucket is full.
func (b *bucket) full() time.Duration { return b.flow(float64(b.limit) - b.level) }

// flow returns the time in which an amount flows in, rounded up to a millisecond.
func (b *bucket) flow(amount float64) time.Duration {
	if amount <= 0 {
		return 0
	}
	d := time.Duration(amount / float64(b.limit) * float64(time.Minute))
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// take takes n, or gives it back if n is negative.
func (b *bucket) take(n int64) {
	if b.limit > 0 {
		b.level = min(b.level-float64(n), float64(b.limit))
	}
}
