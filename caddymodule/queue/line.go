package queue

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// line is the queue of one deployment.
type line struct {
	name    Name
	limit   func(Name) int
	running atomic.Int64
	waiting atomic.Int64 // changed under the lock

	mu   sync.Mutex
	keys []*turns // with waiting requests; the first one has the next turn
}

// turns are the waiting requests of one key, the oldest first.
type turns struct {
	key     string
	waiters []*waiter
}

// waiter is a waiting request.
type waiter struct {
	key   string
	ready chan error // buffered; receives nil when the request may run, ErrFull when it was displaced
}

// join starts a request and returns nil, or enqueues it and returns its waiter.
func (l *line) join(key string, length int) (*waiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Waiting requests run first. A place may have become free since the last
	// call of admit.
	l.admit()
	if len(l.keys) == 0 && l.free() {
		l.running.Add(1)
		return nil, nil
	}
	if int(l.waiting.Load()) >= length && !l.displace(key) {
		return nil, ErrFull
	}
	w := &waiter{key: key, ready: make(chan error, 1)}
	t := l.of(key)
	if t == nil {
		t = &turns{key: key}
		l.keys = append(l.keys, t)
	}
	t.waiters = append(t.waiters, w)
	l.waiting.Add(1)
	// Leave may have run before w was counted as waiting. Check again.
	l.admit()
	return w, nil
}

// wait waits for w's turn.
func (l *line) wait(ctx context.Context, w *waiter, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	select {
	case lost := <-w.ready:
		return lost
	case <-timer.C:
		err = ErrTimeout
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if l.quit(w) {
		return err
	}
	// w was admitted or displaced at the same moment.
	if lost := <-w.ready; lost != nil || ctx.Err() == nil {
		return lost
	}
	Place{line: l}.Leave()
	return context.Cause(ctx)
}

// quit removes w from the line. It returns false if w is no longer queued.
func (l *line) quit(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.of(w.key)
	if t == nil {
		return false
	}
	at := slices.Index(t.waiters, w)
	if at < 0 {
		return false
	}
	l.take(t, at)
	return true
}

// displace makes room for a request of key in a full queue. The key with the most
// waiting requests loses its newest one if it has at least two more than key.
// Otherwise, one key could fill the queue.
func (l *line) displace(key string) bool {
	own := 0
	if t := l.of(key); t != nil {
		own = len(t.waiters)
	}
	var most *turns
	for _, t := range l.keys {
		if most == nil || len(t.waiters) > len(most.waiters) {
			most = t
		}
	}
	if most == nil || len(most.waiters) < own+2 {
		return false
	}
	l.take(most, len(most.waiters)-1).ready <- ErrFull
	return true
}

// advance admits as many waiting requests as the limit allows.
func (l *line) advance() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admit()
}

// admit admits as many waiting requests as the limit allows, one of each key in
// turn. The caller holds the lock.
func (l *line) admit() {
	for len(l.keys) > 0 && l.free() {
		t := l.keys[0]
		w := l.take(t, 0)
		if len(t.waiters) > 0 { // move the key to the end
			l.keys = append(l.keys[1:], t)
		}
		l.running.Add(1)
		w.ready <- nil
	}
}

// free reports whether another request may run.
func (l *line) free() bool {
	limit := l.limit(l.name)
	return limit <= 0 || l.running.Load() < int64(limit)
}

// of returns the turns of a key, or nil if none of its requests wait. There are
// usually few keys.
func (l *line) of(key string) *turns {
	for _, t := range l.keys {
		if t.key == key {
			return t
		}
	}
	return nil
}

// take removes a request from the line, and the key if this was its last request.
func (l *line) take(t *turns, at int) *waiter {
	w := t.waiters[at]
	t.waiters = slices.Delete(t.waiters, at, at+1)
	if len(t.waiters) == 0 {
		l.keys = slices.DeleteFunc(l.keys, func(other *turns) bool { return other == t })
	}
	l.waiting.Add(-1)
	return w
}
