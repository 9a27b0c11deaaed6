package signin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots()
		var releases []func()
		for range maxChecks {
			release, err := s.acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		// As many as may wait do, and none gets in.
		results := make(chan error, maxWaiting+maxChecks)
		for range maxWaiting + maxChecks {
			go func() {
				release, err := s.acquire(context.Background())
				results <- err
				if err == nil {
					release()
				}
			}()
		}
		synctest.Wait()
		if len(results) != 0 {
			t.Fatalf("%d of those that wait were answered: %v", len(results), <-results)
		}
		// One more is turned away at once.
		start := time.Now()
		if _, err := s.acquire(t.Context()); !errors.Is(err, ErrBusy) {
			t.Fatalf("the queue is full: %v", err)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it waited for %v", waited)
		}
		// With the slots free again all get in, one after the other.
		for _, release := range releases {
			release()
		}
		for range maxWaiting + maxChecks {
			if err := <-results; err != nil {
				t.Errorf("one that waited: %v", err)
			}
		}
		if n := s.waiting.Load(); n != 0 || len(s.free) != 0 {
			t.Errorf("%d still wait, %d slots are taken", n, len(s.free))
		}
	})
}

func TestSlotsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots()
		for range maxChecks {
			if _, err := s.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if _, err := s.acquire(t.Context()); !errors.Is(err, ErrBusy) {
			t.Errorf("no slot came free: %v", err)
		}
		if waited := time.Since(start); waited != maxWait {
			t.Errorf("it waited for %v, not %v", waited, maxWait)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the browser has gone: %v", err)
		}
		if n := s.waiting.Load(); n != 0 {
			t.Errorf("%d still wait", n)
		}
	})
}
