// Package newest tracks the configurations that share a long-lived resource. A
// reload starts the next configuration before it stops the old one, and removes
// it again if it fails. The newest remaining configuration is the current one.
package newest

import (
	"slices"
	"sync"
)

// Stack holds the started configurations. It is safe for concurrent use; the zero value
// is empty.
type Stack[K comparable] struct {
	mu   sync.Mutex
	keys []K // newest last
}

// Push adds a configuration as the newest.
func (s *Stack[K]) Push(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, key)
}

// Remove removes a configuration at any position.
func (s *Stack[K]) Remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = slices.DeleteFunc(s.keys, func(other K) bool { return other == key })
}

// Newest returns the current configuration, false if the stack is empty.
func (s *Stack[K]) Newest() (key K, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return key, false
	}
	return s.keys[len(s.keys)-1], true
}
