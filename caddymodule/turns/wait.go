package turns

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"time"
)

// waiter is a request that waits in a line.
type waiter struct {
	Request
	line    *line
	path    []string  // its owner and its key
	rank    int       // in line.turns; changed by a rise
	since   time.Time // it waits, with what it had waited before
	rises   time.Time
	number  uint64
	element *list.Element // in line.waiting; nil: it has its outcome
	place   *Place
	timer   *time.Timer
	ready   chan error // buffered; receives the outcome: nil with the place
}

// Wait waits for a place. It fails with one of this package's errors, an error of [Connector.Resolve], or the cause
// of ctx's end. The caller must call [Place.Leave] or [Place.Unused] in the end.
func (s *Scheduler) Wait(ctx context.Context, q *Request) (*Place, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	a := s.account(q.Account)
	p, w, err := a.admit(q)
	if w == nil {
		return p, err
	}
	return w.wait(ctx, a)
}

// admit enters a request in the line of its deployment, and unlocks the account.
func (a *account) admit(q *Request) (*Place, *waiter, error) {
	defer a.unlock() // also after a panic of a lookup or of [Connector.Resolve]
	l := a.line(q.Deployment)
	if l.applied == 0 {
		a.lookup(l)
	}
	p, w, err := a.enter(l, q)
	if w != nil || err != nil {
		a.release(l) // else by the place
	}
	return p, w, err
}

// enter returns a place that is free, or a waiter that has joined the line. The place has the caller's use of the line.
func (a *account) enter(l *line, q *Request) (*Place, *waiter, error) {
	a.markAll(l, true) // models close by time, too
	a.decide()
	if err := l.fault(q); err != nil {
		return nil, nil, err
	}
	p := &Place{account: a, line: l, client: q.Client, Waited: q.Waited, rank: rank(q.Priority, q.Judge)}
	if r := l.choose(q); r != nil {
		a.join(p)
		a.grant(p, r, time.Now())
		return p, nil, nil
	}
	length := cmp.Or(q.Length, DefaultLength)
	if l.online == 0 && length < 0 {
		length = DefaultLength
	}
	if l.online > 0 && q.Wait < 0 || l.waiting.Len() >= length && (length < 0 || !a.displace(l, q)) {
		return nil, nil, ErrFull
	}
	return nil, a.push(l, q, p), nil
}

// push adds a request to its line.
func (a *account) push(l *line, q *Request, p *Place) *waiter {
	now := time.Now()
	l.raise(now)
	a.clock++
	w := &waiter{
		Request: *q, line: l, path: q.Client.Path(), rank: p.rank, since: now.Add(-q.Waited),
		number: a.clock, place: p, ready: make(chan error, 1),
	}
	w.Wait = cmp.Or(w.Wait, DefaultWait)
	a.join(p)
	e := l.waiting.Back()
	for e != nil && e.Value.(*waiter).since.After(w.since) {
		e = e.Prev()
	}
	if e == nil {
		w.element = l.waiting.PushFront(w)
	} else {
		w.element = l.waiting.InsertAfter(w, e)
	}
	l.insert(w)
	l.byPriority[High-w.Priority].Insert(w.path, w, w.older)
	w.rises = w.since.Add(w.maxWait() / 2)
	if w.Priority == Low {
		l.nextRise = earlier(l.nextRise, w.rises)
	}
	left, _ := w.left(now)
	w.timer = time.NewTimer(left)
	a.markAll(l, true) // a model may close for it
	return w
}

func (l *line) insert(w *waiter) {
	l.turns[w.rank].Insert(w.path, w, w.older)
	l.version++
}

// older reports whether w is older than v.
func (w *waiter) older(v *waiter) bool { return w.compareAge(v) < 0 }

func (w *waiter) compareAge(v *waiter) int {
	return cmp.Or(w.Arrived.Compare(v.Arrived), cmp.Compare(w.number, v.number))
}

// rank returns the position of a priority: a judge goes before the others.
func rank(p Priority, judge bool) int {
	if judge {
		return 2 * int(High-p)
	}
	return 2*int(High-p) + 1
}

// wait waits for the outcome.
func (w *waiter) wait(ctx context.Context, a *account) (*Place, error) {
	defer w.timer.Stop()
	for {
		late, cause := false, error(nil)
		select {
		case err := <-w.ready:
			return w.result(err)
		case <-w.timer.C:
			late = true
		case <-ctx.Done():
			cause = context.Cause(ctx)
		}
		a.mu.Lock()
		if w.element == nil {
			a.unlock() // it got its outcome at the same moment
			p, err := w.result(<-w.ready)
			if p != nil && cause != nil {
				p.Unused()
				return nil, cause
			}
			return p, err
		}
		if late {
			left, err := w.left(time.Now())
			if left > 0 { // its bounds have changed meanwhile
				w.timer.Reset(left)
				a.unlock()
				continue
			}
			cause = err
		}
		a.end(w, nil)
		a.unlock()
		return nil, cause
	}
}

func (w *waiter) result(err error) (*Place, error) {
	if err != nil {
		return nil, err
	}
	return w.place, nil
}

// maxWait returns the maximum wait.
func (w *waiter) maxWait() time.Duration {
	if w.Wait >= 0 && w.line.oneModel > 0 {
		return max(w.Wait, 10*w.place.account.scheduler.settings.Load().swapAfter)
	}
	return w.Wait
}

// left returns how long the request may wait, and the error after that.
func (w *waiter) left(now time.Time) (time.Duration, error) {
	switch {
	case w.line.online == 0:
		return max(0, w.line.lost.Add(w.ConnectWait).Sub(now)), ErrOffline
	case w.Length < 0 || w.Wait < 0:
		return 0, ErrFull
	}
	return max(0, w.since.Add(w.maxWait()).Sub(now)), ErrTimeout
}

// raise raises the requests of low priority whose time has come.
func (l *line) raise(now time.Time) {
	if now.Before(l.nextRise) {
		return
	}
	var due []*waiter
	l.nextRise = now.Add(time.Hour)
	for w := range l.all() {
		if w.rank < rank(Low, true) {
			continue
		}
		if !w.rises.After(now) {
			due = append(due, w)
		} else {
			l.nextRise = earlier(l.nextRise, w.rises)
		}
	}
	slices.SortStableFunc(due, func(v, w *waiter) int { return v.rises.Compare(w.rises) })
	for _, w := range due {
		l.turns[w.rank].Remove(w.path, w)
		w.rank -= rank(Low, true) - rank(Normal, true)
		l.insert(w)
	}
}

// displace ends a waiting request of a full line for a new one, and reports whether there was one to displace: the
// newest of the lowest priority below its own, else of its own priority the newest of the client with the most.
func (a *account) displace(l *line, q *Request) bool {
	for p := Low; p < q.Priority; p++ {
		var newest *waiter
		l.byPriority[High-p].First(func(w *waiter) bool {
			if newest == nil || newest.older(w) {
				newest = w
			}
			return false
		})
		if newest != nil {
			a.end(newest, ErrFull)
			return true
		}
	}
	w, ok := l.byPriority[High-q.Priority].Longest(q.Client.Path())
	if ok {
		a.end(w, ErrFull)
	}
	return ok
}

// end removes a request from its line, with an outcome for it unless it leaves by itself.
func (a *account) end(w *waiter, err error) {
	a.remove(w)
	a.leave(w.place)
	a.drop(w.line)
	if err != nil {
		w.ready <- err
	}
}

// remove removes a request from its line.
func (a *account) remove(w *waiter) {
	l := w.line
	l.waiting.Remove(w.element)
	w.element = nil
	l.turns[w.rank].Remove(w.path, w)
	l.version++
	l.byPriority[High-w.Priority].Remove(w.path, w)
	a.markAll(l, true) // a model that closes for it may stay
}
