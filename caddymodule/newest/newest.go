// Package newest tracks the configurations that share a long-lived resource. A
// reload starts the next configuration before it stops the old one, and removes
// it again if it fails. The newest remaining configuration is the current one.
package newest

import (
	"slices"
	"sync"
)

// Stack holds a value for each started configuration K. It is safe for
// concurrent use; the zero value is empty.
type Stack[K comparable, V any] struct {
	mu      sync.Mutex
	entries []entry[K, V] // newest last
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Push adds a configuration as the newest.
func (s *Stack[K, V]) Push(key K, value V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, entry[K, V]{key, value})
}

// Remove removes a configuration at any position.
func (s *Stack[K, V]) Remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = slices.DeleteFunc(s.entries, func(e entry[K, V]) bool { return e.key == key })
}

// Newest returns the current value, false if the stack is empty.
func (s *Stack[K, V]) Newest() (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 {
		return value, false
	}
	return s.entries[len(s.entries)-1].value, true
}

// Len returns the number of configurations.
func (s *Stack[K, V]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}
