package limits_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
)

func TestQuotasOfKeys(t *testing.T) {
	s := &source{ofKey: limits.UsageLimits{TokensPerDay: 100, RequestsPerMinute: 60}}
	q := newLimiter(s)
	permit, _ := enter(t, q, "k", ten)
	permit.Settle(used)
	quotas := func() map[string][]limits.State {
		got := map[string][]limits.State{}
		q.Quotas(func(key string, states []limits.State) bool {
			got[key] = states
			return true
		})
		return got
	}
	if got := quotas(); len(got) != 1 || len(got["k"]) != 1 || got["k"][0].Limit != limits.TokensPerDay ||
		got["k"][0].Used != 10 {
		t.Errorf("%+v", got)
	}
	s.set(limits.UsageLimits{TokensPerDay: 200})
	if got := quotas(); len(got["k"]) != 1 || got["k"][0].Max != 200 {
		t.Errorf("with a higher limit, before the next request: %+v", got)
	}
	s.set(limits.UsageLimits{})
	if got := quotas(); len(got) != 0 {
		t.Errorf("without a limit: %+v", got)
	}
}

// A key without requests is dropped, even if no other key has requests.
func TestQuotasOfIdleKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLimiter(&source{ofKey: limits.UsageLimits{TokensPerDay: 100}})
		permit, _ := enter(t, q, "k", ten)
		permit.Settle(used)
		time.Sleep(time.Hour)
		q.Quotas(func(key string, states []limits.State) bool {
			t.Errorf("%s: %+v", key, states)
			return true
		})
	})
}

// Only an account with requests has a state, and only until it is removed.
func TestStatesOfAccounts(t *testing.T) {
	q := newLimiter(&source{ofKey: limits.UsageLimits{TokensPerDay: 100}})
	others := "bcdefghijkl"
	if n := testing.AllocsPerRun(len(others)-1, func() {
		q.Changed(others[:1], limits.Subject{Of: limits.OfKey, ID: "k"})
		others = others[1:]
	}); n != 0 {
		t.Errorf("%v allocations for an account without requests", n)
	}
	permit, _ := enter(t, q, "k", ten)
	q.RemoveAccount("a")
	permit.Settle(used)
	q.Quotas(func(key string, states []limits.State) bool {
		t.Errorf("of a removed account: %s: %+v", key, states)
		return true
	})
}

// A panic while sums are loaded does not keep the next request waiting.
func TestPanicOfLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{ofKey: limits.UsageLimits{TokensPerDay: 10}, reading: func(context.Context) { panic("sums") }}
		l := newLimiter(s)
		usage := func() {
			defer func() { _ = recover() }()
			_, _ = l.Usage(t.Context(), "acme", levels("k"))
		}
		usage()
		s.reading = nil
		usage()
	})
}

// Reading sums again in the background pauses after it took too long.
func TestSlowRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{ofKey: limits.UsageLimits{TokensPerDay: 10000}}
		l := newLimiter(s)
		l.Divide(func() int { return 2 })
		run := func() {
			permit, refused := enter(t, l, "k", ten)
			if refused != "" {
				t.Fatal(refused)
			}
			permit.Settle(used)
		}
		run()
		time.Sleep(31 * time.Second)
		s.reading, s.err = func(ctx context.Context) { <-ctx.Done() }, context.DeadlineExceeded
		run()
		time.Sleep(11 * time.Second)
		for range 3 {
			run()
		}
		synctest.Wait()
		if n := s.reads.Load(); n != 2 {
			t.Errorf("the sums were read %d times, want 2", n)
		}
		time.Sleep(11 * time.Second)
	})
}
