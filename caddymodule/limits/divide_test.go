package limits_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
)

// A gateway that counts again after another one has counted includes the usage there.
func TestLimitedComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{ofAccount: limits.UsageLimits{TokensPerDay: 1000}, day: map[string]limits.Sums{}}
		s.reading = func(context.Context) { time.Sleep(time.Second) }
		q := newLimiter(s)
		q.Divide(func() int { return 2 })
		permit, _ := enter(t, q, "k", ten)
		permit.Settle(used)
		s.mu.Lock()
		s.day["a"] = limits.Sums{Requests: 100, Tokens: 5000} // at the other one
		s.mu.Unlock()
		time.Sleep(31 * time.Second)
		permit, refused := enter(t, q, "k", ten)
		if refused != "" {
			t.Errorf("while the usage is read again: %q", refused)
		}
		permit.Settle(used)
		time.Sleep(2 * time.Second)
		if _, refused := enter(t, q, "k", ten); refused != "account tokens_per_day" {
			t.Errorf("after another gateway has counted: %q", refused)
		}
		s.mu.Lock()
		s.ofAccount.TokensPerDay, s.day["a"] = 10000, limits.Sums{Requests: 1000, Tokens: 50000}
		s.mu.Unlock()
		time.Sleep(3 * time.Minute)
		if _, refused := enter(t, q, "k", ten); refused != "account tokens_per_day" {
			t.Errorf("after a rest: %q", refused)
		}
	})
}

// Edges share the limits per minute and of concurrency, each at least 1. A request that is larger than the share is
// admitted by a full bucket, and overdraws it.
func TestDivide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{ofKey: limits.UsageLimits{RequestsPerMinute: 60, TokensPerMinute: 90, Concurrency: 2}}
		q := newLimiter(s)
		edges := 3
		q.Divide(func() int { return edges })
		at := limits.Cost{Input: 80, Output: 5}
		first, refused := enter(t, q, "k", at)
		if refused != "" {
			t.Fatalf("larger than the share: %s", refused)
		}
		states := usage(t, q, "k").States
		if len(states) != 2 || states[0].Max != 20 || states[0].Total != 60 || states[1].Max != 30 || states[1].Total != 90 {
			t.Errorf("the shares: %+v", states)
		}
		_, err := q.Enter(t.Context(), request("k", at))
		r, ok := errors.AsType[*limits.Refusal](err)
		if !ok || r.Limit != limits.TokensPerMinute || r.Max != 30 || r.Total != 90 {
			t.Errorf("the next one: %v", err)
		}
		first.Settle(limits.Used{Requests: 1, Tokens: 85})
		if states := usage(t, q, "k").States; states[1].Reset() != 85*time.Minute/30 {
			t.Errorf("overdrawn: %+v", states[1])
		}
		s.set(limits.UsageLimits{RequestsPerMinute: 60, Concurrency: 2})
		first, _ = enter(t, q, "k", limits.Cost{})
		without := request("k", limits.Cost{})
		without.Length = -1
		_, err = q.Enter(t.Context(), without)
		if r, ok := errors.AsType[*limits.Refusal](err); !ok || r.Limit != limits.Concurrency || r.Max != 1 || r.Total != 2 {
			t.Errorf("concurrency: %v", err)
		}
		edges = 1
		if _, refused := enter(t, q, "k", limits.Cost{}); refused != "" {
			t.Errorf("when the other edges are gone: %s", refused)
		}
		if states := usage(t, q, "k").States; states[0].Max != 60 || states[0].Total != 0 {
			t.Errorf("alone: %+v", states)
		}
		first.Settle(used)
	})
}
