package signin

import (
	"context"
	"sync/atomic"
	"time"
)

// Checking a password costs 19 MiB and tens of milliseconds of a core, so that
// few are checked at a time: a flood of them must not take the memory or the
// cores from the requests that the gateway is for.
const (
	maxChecks  = 2
	maxWaiting = 32
	maxWait    = 10 * time.Second
)

// slots lets maxChecks at a time pass, and a bounded number wait for a bounded
// time.
type slots struct {
	free    chan struct{}
	waiting atomic.Int64
}

func newSlots() *slots { return &slots{free: make(chan struct{}, maxChecks)} }

// acquire waits for a slot. The caller gives it back with release.
func (s *slots) acquire(ctx context.Context) (release func(), err error) {
	if s.waiting.Add(1) > maxWaiting+maxChecks {
		s.waiting.Add(-1)
		return nil, errBusy()
	}
	defer s.waiting.Add(-1)
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free }, nil
	case <-timer.C:
		return nil, errBusy()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func errBusy() error {
	return fail(ErrBusy, "too many people are signing in at this moment: try again in a few seconds")
}
