package fair

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"
)

// ErrBusy means that no slot was available: too many clients wait, the wait was
// too long, or the semaphore is closed.
var ErrBusy = errors.New("too many clients at a time")

// Limits are the limits of a semaphore.
type Limits struct {
	Slots   int           // at a time
	Spare   int           // slots that each lane leaves for the other one
	Waiting int           // waiters per lane
	Wait    time.Duration // maximum wait for a slot
	MaxTime time.Duration // after which a slot is released automatically; 0: never
}

// Semaphore bounds how many clients do something costly at a time. Known clients do
// not wait for strangers. In each lane, networks take turns from the widest to the
// narrowest, and each network has a share of the queue.
type Semaphore struct {
	limits Limits

	mu     sync.Mutex
	lanes  [2]lane // of strangers, of known clients
	closed bool
}

// lane holds the state of either strangers or known clients.
type lane struct {
	inside  int // clients with a slot
	waiting Budget
	queue   Turns[netip.Prefix, *waiter] // by network
}

const (
	strangers = iota
	known
)

// waiter waits for a slot.
type waiter struct {
	lane   *lane
	from   Networks
	ready  chan struct{} // closed with the slot, or when the semaphore is closed
	inside bool
}

// Slot lasts until Release, or for [Limits.MaxTime].
type Slot struct {
	semaphore *Semaphore
	lane      *lane
	released  bool
	timer     *time.Timer // nil without Limits.MaxTime
}

// NewSemaphore returns a semaphore.
func NewSemaphore(l Limits) *Semaphore {
	s := &Semaphore{limits: l}
	for i := range s.lanes {
		s.lanes[i].waiting.Total = l.Waiting
	}
	return s
}

// Acquire waits for a slot. It returns ErrBusy or the cause of ctx's end.
func (s *Semaphore) Acquire(ctx context.Context, from Networks, isKnown bool) (*Slot, error) {
	w, err := s.enqueue(from, isKnown)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(s.limits.Wait)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = ErrBusy
	}
	return s.endWait(w, err)
}

// enqueue appends a waiter to its network's queue.
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
	w := &waiter{lane: l, from: from, ready: make(chan struct{})}
	l.queue.Push(from, w)
	s.grant()
	return w, nil
}

// endWait ends a wait. A waiter that was called gets its slot, even if it gave up
// at the same moment.
func (s *Semaphore) endWait(w *waiter, gaveUp error) (*Slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.inside:
		p := &Slot{semaphore: s, lane: w.lane}
		if s.limits.MaxTime > 0 {
			p.timer = time.AfterFunc(s.limits.MaxTime, p.Release)
		}
		return p, nil
	case s.closed:
		return nil, ErrBusy
	}
	w.lane.queue.Remove(w.from, w)
	w.lane.waiting.Return(w.from, 1)
	return nil, gaveUp
}

// grant grants the free slots, to known clients first. The caller holds the lock.
func (s *Semaphore) grant() {
	for _, i := range []int{known, strangers} {
		l := &s.lanes[i]
		for l.queue.Len() > 0 && l.inside < s.limits.Slots-s.limits.Spare &&
			s.lanes[known].inside+s.lanes[strangers].inside < s.limits.Slots {
			w := l.queue.Pop()
			l.waiting.Return(w.from, 1)
			l.inside++
			w.inside = true
			close(w.ready)
		}
	}
}

// Counts returns how many clients have a slot and how many wait for one.
func (s *Semaphore) Counts() (inside, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.lanes {
		inside += s.lanes[i].inside
		waiting += s.lanes[i].queue.Len()
	}
	return inside, waiting
}

// Closed reports whether the semaphore is closed.
func (s *Semaphore) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close makes current and later waiters fail with ErrBusy.
func (s *Semaphore) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for i := range s.lanes {
		for l := &s.lanes[i]; l.queue.Len() > 0; {
			close(l.queue.Pop().ready)
		}
	}
}

// Release returns the slot. Later calls have no effect.
func (p *Slot) Release() {
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
	p.semaphore.grant()
}
