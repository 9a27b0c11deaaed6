package limits_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
)

// The reservation of a client that has left is released, even before its request ends.
func TestLimitedLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLimiter(&source{ofKey: limits.UsageLimits{RequestsPerMinute: 6}})
		for range 6 {
			enter(t, q, "k", need)
		}
		for range 1000 { // the other requests may run first
			var gone sync.WaitGroup
			ctx, leave := context.WithCancel(t.Context())
			gone.Go(func() {
				if _, err := q.Enter(ctx, request("k", need)); !errors.Is(err, context.Canceled) {
					t.Errorf("a client that leaves: %v", err)
				}
			})
			synctest.Wait() // until it waits for its turn in 10 seconds
			leave()
			_, err := q.Enter(t.Context(), request("k", limits.Need{Cost: need.Cost}))
			refused, ok := errors.AsType[*limits.Refusal](err)
			if !ok {
				t.Fatalf("a request when it leaves: %v", err)
			}
			if refused.Wait() != 10*time.Second {
				t.Fatalf("a request when it leaves must wait for %v", refused.Wait())
			}
			gone.Wait()
		}
		start := time.Now()
		if enter(t, q, "k", need); time.Since(start) != 10*time.Second {
			t.Errorf("the next turn is after %v", time.Since(start))
		}
		if l := usage(t, q, "k"); l.States[0].Used != 6 {
			t.Errorf("reservations after all clients have left: %+v", l.States)
		}
	})
}
