package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// line is the queue of one deployment, key or account.
type line struct {
	name    Name
	limit   func(Name) int
	running atomic.Int64
	waiting atomic.Int64 // changed under the lock

	mu    sync.Mutex
	turns fair.Turns[string, *waiter] // waiting requests by owner and key
}

// waiter is a waiting request.
type waiter struct {
	path  []string   // its owner and its key
	ready chan error // buffered; receives nil when the request may run, ErrFull when it was displaced
}

// enter waits until a request may run, and reports whether it had to wait.
func (l *line) enter(ctx context.Context, r *Request) (waited bool, err error) {
	if l.limit(l.name) <= 0 {
		l.running.Add(1)
		return false, nil
	}
	w, err := l.join(fair.Client{Owner: r.Owner, Key: r.Key}, r.Length)
	if err != nil || w == nil {
		return false, err
	}
	return true, l.wait(ctx, w, r.Bounds.Wait)
}

// leave ends a request that has entered.
func (l *line) leave() {
	l.running.Add(-1)
	if l.waiting.Load() > 0 {
		l.advance()
	}
}

// join starts a request and returns nil, or enqueues it and returns its waiter.
func (l *line) join(c fair.Client, length int) (*waiter, error) {
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
	w := &waiter{path: path, ready: make(chan error, 1)}
	l.turns.Push(w.path, w)
	l.waiting.Add(1)
	// leave may have run before w was counted as waiting. Check again.
	l.admit()
	return w, nil
}

// wait waits for w's turn.
func (l *line) wait(ctx context.Context, w *waiter, d time.Duration) error {
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
	if l.quit(w) {
		return err
	}
	// w was admitted or displaced at the same moment.
	if displaced := <-w.ready; displaced != nil || ctx.Err() == nil {
		return displaced
	}
	l.leave()
	return context.Cause(ctx)
}

// quit removes w from the line. It returns false if w is no longer queued.
func (l *line) quit(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	queued := l.turns.Remove(w.path, w)
	if queued {
		l.waiting.Add(-1)
	}
	return queued
}

// displace removes a request from a full queue for one with this path: see [fair.Turns.Longest].
func (l *line) displace(path []string) bool {
	newest, ok := l.turns.Longest(path)
	if !ok {
		return false
	}
	l.turns.Remove(newest.path, newest)
	l.waiting.Add(-1)
	newest.ready <- ErrFull
	return true
}

// advance admits as many waiting requests as the limit allows.
func (l *line) advance() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admit()
}

// admit admits as many waiting requests as the limit allows, one of each owner in
// turn, and of each of its keys. The caller holds the lock.
func (l *line) admit() {
	for l.turns.Len() > 0 && l.free() {
		w := l.turns.Pop()
		l.waiting.Add(-1)
		l.running.Add(1)
		w.ready <- nil
	}
}

// free reports whether another request may run.
func (l *line) free() bool {
	limit := l.limit(l.name)
	return limit <= 0 || l.running.Load() < int64(limit)
}
