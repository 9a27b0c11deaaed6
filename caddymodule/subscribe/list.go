// Package subscribe provides lists of callbacks.
package subscribe

import (
	"slices"
	"sync"
)

// List is a list of subscribers. Its methods are safe for concurrent use, and no
// lock is held while subscribers are called. The zero value is empty.
type List[T any] struct {
	mu   sync.Mutex
	list Subscribers[T] // never changed in place
}

// Subscribers is a snapshot of the subscribers of a list.
type Subscribers[T any] []*func(T)

// Add adds f. stop removes it; a call that has already begun may still be running.
func (l *List[T]) Add(f func(T)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(slices.Clip(l.list), &f)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list = slices.DeleteFunc(slices.Clone(l.list), func(other *func(T)) bool { return other == &f })
	}
}

// Now returns a snapshot of the subscribers.
func (l *List[T]) Now() Subscribers[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list
}

// Call calls each subscriber with v.
func (s Subscribers[T]) Call(v T) {
	for _, f := range s {
		(*f)(v)
	}
}
