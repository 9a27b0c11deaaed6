package queue

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
)

// reserve waits until the request can reserve what it needs, and until what it has reserved is
// due.
func (a *limitedAccount) reserve(ctx context.Context, q *Queues, r *Request) (*ticket, error) {
	for end := time.Now().Add(r.Need.Wait); ; {
		t, wait, refused := a.tryReserve(ctx, q, r, end)
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
			left = a.waited(ctx, t)
		}
		switch {
		case left:
			if refused == nil {
				t.leave(nil, limits.Used{})
			}
			return nil, context.Cause(ctx)
		case refused == nil:
			t.waited = wait > 0
			return t, nil
		}
	}
}

func (a *limitedAccount) tryReserve(
	ctx context.Context, q *Queues, r *Request, end time.Time,
) (*ticket, time.Duration, *limits.Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	of := a.levels(q, r, now)
	t := &ticket{source: q.limited.source, account: a, of: of}
	most := max(end.Sub(now), 0)
	reservation, wait, refused := limits.Reserve(now, r.Cost, most, of[0].Level, of[1].Level)
	if (refused != nil || wait > 0) && a.giveBack(now) {
		reservation.Settle(now, limits.Used{})
		reservation, wait, refused = limits.Reserve(now, r.Cost, most, of[0].Level, of[1].Level)
	}
	if t.states = states(of, now); refused != nil {
		refused.States = t.states
	}
	t.reservation = reservation
	if wait > 0 {
		a.waiting[t] = ctx
	}
	return t, wait, refused
}

// giveBack gives back what requests have reserved whose clients have left before it was due, and
// reports whether there are any. They do so themselves, but a moment later. The caller holds the lock.
func (a *limitedAccount) giveBack(now time.Time) (found bool) {
	for t, ctx := range a.waiting {
		if ctx.Err() != nil {
			t.reservation.Settle(now, limits.Used{})
			t.reservation = limits.Reservation{}
			delete(a.waiting, t)
			found = true
		}
	}
	return found
}

// waited ends the wait of a request, and reports whether its client has left. Then nothing is
// reserved any longer; otherwise its reservation is its own from then on.
func (a *limitedAccount) waited(ctx context.Context, t *ticket) (left bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	left = ctx.Err() != nil
	if _, waits := a.waiting[t]; waits && left {
		t.reservation.Settle(time.Now(), limits.Used{})
		t.reservation = limits.Reservation{}
	}
	delete(a.waiting, t)
	return left
}
