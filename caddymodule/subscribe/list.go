// Package subscribe provides lists of callbacks.
package subscribe

import (
	"slices"
	"sync"
	"sync/atomic"
)

// List is a list of subscribers. Its methods are safe for concurrent use, and no
// lock is held while subscribers are called. The zero value is empty.
type List[T any] struct {
	mu   sync.Mutex // held while replacing list
	list atomic.Pointer[Subscribers[T]]
}

// Subscribers is a snapshot of the subscribers of a list.
type Subscribers[T any] []*func(T)

// Add adds f. stop removes it; a call that has already begun may still be running.
func (l *List[T]) Add(f func(T)) (stop func()) {
	subscriber := &f
	l.change(func(s Subscribers[T]) Subscribers[T] { return append(s, subscriber) })
	return func() {
		l.change(func(s Subscribers[T]) Subscribers[T] {
			return slices.DeleteFunc(s, func(other *func(T)) bool { return other == subscriber })
		})
	}
}

func (l *List[T]) change(f func(Subscribers[T]) Subscribers[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := f(slices.Clone(l.Now()))
	l.list.Store(&next)
}

// Now returns the current subscribers.
func (l *List[T]) Now() Subscribers[T] {
	if s := l.list.Load(); s != nil {
		return *s
	}
	return nil
}

// Call calls each subscriber with v.
func (s Subscribers[T]) Call(v T) {
	for _, f := range s {
		(*f)(v)
	}
}
