package limits

import (
	"context"
	"time"
)

// reserve waits until the limits have enough left for the request, and until its reservation is due.
func (a *limitedAccount) reserve(ctx context.Context, r *Request) (*limitPermit, error) {
	for end := time.Now().Add(r.Wait); ; {
		t, wait, refused := a.tryReserve(ctx, r, end)
		if refused != nil && (refused.Quota || time.Now().Add(refused.Wait()).After(end)) {
			return nil, refused
		}
		if refused != nil {
			wait = refused.Wait()
		}
		left := ctx.Err() != nil
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			left = a.endWait(ctx, t)
		}
		switch {
		case left:
			if refused == nil {
				t.leave(nil, Used{})
			}
			return nil, context.Cause(ctx)
		case refused == nil:
			t.waited = wait > 0
			return t, nil
		}
	}
}

// tryReserve returns a permit with a reservation, and how long to wait until it is due, or a refusal.
func (a *limitedAccount) tryReserve(ctx context.Context, r *Request, end time.Time) (
	*limitPermit, time.Duration, *Refusal,
) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	levels := a.levels(r.Key, now)
	t := &limitPermit{account: a, levels: levels}
	maxWait := max(end.Sub(now), 0)
	reservation, wait, refused := Reserve(now, r.Cost, maxWait, levels[0].Level, levels[1].Level)
	if (refused != nil || wait > 0) && a.releaseAbandoned(now) {
		reservation.Settle(now, Used{})
		reservation, wait, refused = Reserve(now, r.Cost, maxWait, levels[0].Level, levels[1].Level)
	}
	if t.states = states(levels, now); refused != nil {
		refused.States = t.states
	}
	t.reservation = reservation
	if wait > 0 {
		a.waiting[t] = ctx
	}
	return t, wait, refused
}

// releaseAbandoned releases the reservations of waiting requests whose clients have left, and reports
// whether there are any. These requests do so, too, but a moment later. The caller holds the lock.
func (a *limitedAccount) releaseAbandoned(now time.Time) (found bool) {
	for t, ctx := range a.waiting {
		if ctx.Err() != nil {
			t.reservation.Settle(now, Used{})
			t.reservation = Reservation{}
			delete(a.waiting, t)
			found = true
		}
	}
	return found
}

// endWait ends the wait of a request, and reports whether its client has left. In that case, its
// reservation is released.
func (a *limitedAccount) endWait(ctx context.Context, t *limitPermit) (left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left = ctx.Err() != nil
	if _, waits := a.waiting[t]; waits && left {
		t.reservation.Settle(time.Now(), Used{})
		t.reservation = Reservation{}
	}
	delete(a.waiting, t)
	return left
}
