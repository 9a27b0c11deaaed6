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
	mu      sync.Mutex
	started []K // newest last
}

// Push adds a configuration as the newest.
func (s *Stack[K]) Push(config K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = append(s.started, config)
}

// Remove removes a configuration at any position.
func (s *Stack[K]) Remove(config K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = slices.DeleteFunc(s.started, func(other K) bool { return other == config })
}

// Newest returns the current configuration, false if the stack is empty.
func (s *Stack[K]) Newest() (config K, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.started) == 0 {
		return config, false
	}
	return s.started[len(s.started)-1], true
}
