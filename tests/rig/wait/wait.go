// Package wait waits in tests for events that happen soon, or later on a busy machine. After two minutes it
// fails the test. Only the test's own goroutine may call it.
package wait

import (
	"testing"
	"time"
)

const (
	patience = 2 * time.Minute
	pause    = 2 * time.Millisecond
)

// Until calls f until it returns true.
func Until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("waited %v: %s", patience, what)
		}
	}
}

// For receives from c.
func For[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v: %s", patience, what)
		panic("unreachable")
	}
}
