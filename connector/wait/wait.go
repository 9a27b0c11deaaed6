// Package wait lets goroutines wait for pauses, wake-ups and changes.
package wait

import (
	"context"
	"sync"
	"time"
)

// For waits for d, or until ctx ends. It returns the cause of ctx's end.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Wake sends v, unless the channel is full: its reader wakes anyway.
func Wake[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

// Change lets any number of goroutines wait for the next change of something. The zero value is
// ready to use.
type Change struct {
	mu   sync.Mutex
	next chan struct{} // nil: nothing waits
}

// Next returns a channel that is closed at the next change. Call Next before you read the state
// that changes.
func (c *Change) Next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Now announces a change.
func (c *Change) Now() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}
