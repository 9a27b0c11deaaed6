package fair

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrBusy means that there was no permit: too many clients wait, or one has waited
// for too long, or the semaphore is closed.
var ErrBusy = errors.New("too many clients at a time")

// Limits are those of a semaphore.
type Limits struct {
	Permits  int           // at a time
	Reserved int           // of these, that neither known clients nor strangers can have alone
	Waiting  int           // strangers who wait, and as many known clients
	Wait     time.Duration // for a permit at most
	Hold     time.Duration // of a permit at most, which then ends by itself; 0: without end
}

// Semaphore bounds how many clients do something costly at a time. Known clients do
// not wait for strangers. These get permits by turns over their networks, from the
// widest to the narrowest, and each network has a share of the places to wait at.
type Semaphore struct {
	limits Limits

	mu     sync.Mutex
	lanes  [2]lane // of strangers, of known clients
	closed bool
}

// lane is what strangers have of a semaphore, or known clients.
type lane struct {
	inside  int // who have a permit
	waiting Budget
	queue   queue
}

const (
	strangers = iota
	known
)

// waiter waits for a permit.
type waiter struct {
	lane   *lane
	from   Networks
	called chan struct{} // closed when there is a permit, and when the semaphore is closed
	inside bool
}

// Permit ends with Release, or by itself.
type Permit struct {
	semaphore *Semaphore
	lane      *lane
	released  bool
	timer     *time.Timer // nil: it has no end
}

// NewSemaphore returns a semaphore.
func NewSemaphore(l Limits) *Semaphore {
	s := &Semaphore{limits: l}
	for i := range s.lanes {
		s.lanes[i].waiting.Most = l.Waiting
	}
	return s
}

// Acquire waits for a permit. Its errors are ErrBusy and the cause of ctx's end.
func (s *Semaphore) Acquire(ctx context.Context, from Networks, isKnown bool) (*Permit, error) {
	w, err := s.enqueue(from, isKnown)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(s.limits.Wait)
	defer timer.Stop()
	select {
	case <-w.called:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrBusy
	}
	return s.settle(w, err)
}

// enqueue puts a waiter at the end of its network's queue.
func (s *Semaphore) enqueue(from Networks, isKnown bool) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.lanes[strangers]
	if isKnown {
		l = &s.lanes[known]
	}
	if s.closed || !l.waiting.Take(from, 1) {
		return nil, ErrBusy
	}
	w := &waiter{lane: l, from: from, called: make(chan struct{})}
	l.queue.push(from, w)
	s.call()
	return w, nil
}

// settle ends a wait, with a permit for a waiter who was called: that may have been
// at the moment when it gave up.
func (s *Semaphore) settle(w *waiter, gaveUp error) (*Permit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.inside:
		p := &Permit{semaphore: s, lane: w.lane}
		if s.limits.Hold > 0 {
			p.timer = time.AfterFunc(s.limits.Hold, p.Release)
		}
		return p, nil
	case s.closed:
		return nil, ErrBusy
	}
	w.lane.queue.remove(w.from, w)
	w.lane.waiting.Give(w.from, 1)
	return nil, gaveUp
}

// call gives out the permits that are free, to known clients first. The caller
// holds the lock.
func (s *Semaphore) call() {
	for _, i := range []int{known, strangers} {
		l := &s.lanes[i]
		for l.queue.size > 0 && l.inside < s.limits.Permits-s.limits.Reserved &&
			s.lanes[known].inside+s.lanes[strangers].inside < s.limits.Permits {
			w := l.queue.pop()
			l.waiting.Give(w.from, 1)
			l.inside++
			w.inside = true
			close(w.called)
		}
	}
}

// Counts returns how many clients have a permit, and how many wait for one.
func (s *Semaphore) Counts() (inside, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.lanes {
		inside += s.lanes[i].inside
		waiting += s.lanes[i].queue.size
	}
	return inside, waiting
}

// Closed reports whether the semaphore is closed.
func (s *Semaphore) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close sends the waiters away.
func (s *Semaphore) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for i := range s.lanes {
		for l := &s.lanes[i]; l.queue.size > 0; {
			close(l.queue.pop().called)
		}
	}
}

// Release makes room for the next one. Only the first call counts.
func (p *Permit) Release() {
	p.semaphore.mu.Lock()
	defer p.semaphore.mu.Unlock()
	if p.released {
		return
	}
	p.released = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.lane.inside--
	p.semaphore.call()
}
