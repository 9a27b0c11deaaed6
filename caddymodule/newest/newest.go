// Package newest keeps the configurations that share what outlives them. A
// reload starts the next configuration before the old one stops, and a failed
// one is taken back: the newest that is left is in force.
package newest

import (
	"slices"
	"sync"
)

// Stack holds a value for each started configuration K. It is safe for
// concurrent use; the zero value is empty.
type Stack[K comparable, V any] struct {
	mu      sync.Mutex
	entries []entry[K, V] // the newest last
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// Push makes a configuration the newest.
func (s *Stack[K, V]) Push(key K, value V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, entry[K, V]{key, value})
}

// Remove removes a configuration, wherever it is.
func (s *Stack[K, V]) Remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = slices.DeleteFunc(s.entries, func(e entry[K, V]) bool { return e.key == key })
}

// Newest returns the value in force, or false if there is none.
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
