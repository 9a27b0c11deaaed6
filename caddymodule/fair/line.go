package fair

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrFull is returned if too many requests wait in a line.
	ErrFull = errors.New("the queue is full")
	// ErrTimeout is returned if a request has waited in a line for the maximum time.
	ErrTimeout = errors.New("timed out in the queue")
)

// Client is the sender of a request: a key and its owner, who may have many keys.
type Client struct{ Owner, Key string }

// Path returns the client's groups in [Turns].
func (c Client) Path() []string { return []string{c.Owner, c.Key} }

// Line lets a limited number of requests run at the same time. The others wait: round robin between the owners of keys
// and between the keys of an owner, and first in, first out within a key. Without a limit, a request makes two atomic
// additions and allocates no memory.
type Line struct {
	limit   func() int
	running atomic.Int64
	waiting atomic.Int64 // changed under the lock

	mu    sync.Mutex
	turns Turns[string, *lineWaiter] // waiting requests by owner and key
}

// NewLine returns an empty line. limit returns how many requests may run, 0 for no limit. It is called for each
// request and must be fast. Call [Line.Advance] when its result changes.
func NewLine(limit func() int) *Line { return &Line{limit: limit} }

// lineWaiter is a waiting request.
type lineWaiter struct {
	path  []string   // its owner and its key
	ready chan error // buffered; receives nil when the request may run, ErrFull when it was displaced
}

// Enter waits up to d until a request of c may run, and reports whether it had to wait. The caller must call
// [Line.Leave] when the request has ended. If length requests wait already, Enter fails with [ErrFull]; with a negative
// length, no request may wait. It also fails with [ErrTimeout], or the cause of ctx's cancellation.
func (l *Line) Enter(ctx context.Context, c Client, length int, d time.Duration) (waited bool, err error) {
	if l.limit() <= 0 {
		l.running.Add(1)
		return false, nil
	}
	w, err := l.join(c, length)
	if err != nil || w == nil {
		return false, err
	}
	return true, l.wait(ctx, w, d)
}

// Leave ends a request that has entered.
func (l *Line) Leave() {
	l.running.Add(-1)
	if l.waiting.Load() > 0 {
		l.Advance()
	}
}

// Running returns the number of running requests.
func (l *Line) Running() int64 { return l.running.Load() }

// Waiting returns the number of waiting requests.
func (l *Line) Waiting() int64 { return l.waiting.Load() }

// join starts a request and returns nil, or enqueues it and returns its waiter.
func (l *Line) join(c Client, length int) (*lineWaiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Waiting requests run first. A permit may have become free since the last
	// call of admit.
	l.admit()
	if l.turns.Len() == 0 && l.free() {
		l.running.Add(1)
		return nil, nil
	}
	path := c.Path()
	if length < 0 || l.turns.Len() >= length && !l.displace(path) {
		return nil, ErrFull
	}
	w := &lineWaiter{path: path, ready: make(chan error, 1)}
	l.turns.Push(w.path, w)
	l.waiting.Add(1)
	// Leave may have run before w was counted as waiting. Check again.
	l.admit()
	return w, nil
}

// wait waits for w's turn.
func (l *Line) wait(ctx context.Context, w *lineWaiter, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	select {
	case displaced := <-w.ready:
		return displaced
	case <-timer.C:
		err = ErrTimeout
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if l.remove(w) {
		return err
	}
	// w was admitted or displaced at the same moment.
	if displaced := <-w.ready; displaced != nil || ctx.Err() == nil {
		return displaced
	}
	l.Leave()
	return context.Cause(ctx)
}

// remove removes w from the line. It returns false if w is no longer queued.
func (l *Line) remove(w *lineWaiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	queued := l.turns.Remove(w.path, w)
	if queued {
		l.waiting.Add(-1)
	}
	return queued
}

// displace removes a request from a full queue, in favor of a client with this path: see [Turns.Longest].
func (l *Line) displace(path []string) bool {
	newest, ok := l.turns.Longest(path)
	if !ok {
		return false
	}
	l.turns.Remove(newest.path, newest)
	l.waiting.Add(-1)
	newest.ready <- ErrFull
	return true
}

// Advance admits as many waiting requests as the limit allows.
func (l *Line) Advance() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admit()
}

// admit admits as many waiting requests as the limit allows, one of each owner in
// turn, and of each of its keys. The caller holds the lock.
func (l *Line) admit() {
	for l.turns.Len() > 0 && l.free() {
		w := l.turns.Pop()
		l.waiting.Add(-1)
		l.running.Add(1)
		w.ready <- nil
	}
}

// free reports whether another request may run.
func (l *Line) free() bool {
	limit := l.limit()
	return limit <= 0 || l.running.Load() < int64(limit)
}
