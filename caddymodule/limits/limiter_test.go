package limits_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/limits"
)

// source has the limits of one account and its keys, and their past usage.
type source struct {
	mu        sync.Mutex
	ofAccount limits.UsageLimits
	ofKey     limits.UsageLimits
	others    map[limits.Subject]limits.UsageLimits
	day       map[string]limits.Sums // by id
	err       error
	reads     atomic.Int64
	reading   func(ctx context.Context) // may be nil
	crossed   []string
}

func (s *source) Crossed(_ string, c limits.Crossing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crossed = append(s.crossed, fmt.Sprint(c.ID, " ", c.Limit, " ", c.Percent))
}

func (s *source) LimitsOf(_ string, of limits.Subject) limits.UsageLimits {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch of.Of {
	case limits.OfAccount:
		return s.ofAccount
	case limits.OfKey:
		return s.ofKey
	}
	return s.others[of]
}

// set sets the limits of keys.
func (s *source) set(l limits.UsageLimits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ofKey = l
}

func (s *source) SumsOf(ctx context.Context, _ string, of limits.Subject) (day, month limits.Sums, err error) {
	s.reads.Add(1)
	if s.reading != nil {
		s.reading(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.day[of.ID], s.day[of.ID], s.err
}

func newLimiter(s *source) *limits.Limiter {
	return limits.NewLimiter(s, slog.New(slog.DiscardHandler))
}

// request is a request of a key of account "a". At most 64 such requests wait for concurrency, for a minute.
func request(key string, c limits.Cost) limits.Request {
	return limits.Request{
		Account: "a", Levels: levels(key), Client: fair.Client{Owner: "default", Key: key}, Cost: c, Length: 64,
		Queue: time.Minute,
	}
}

// levels returns the levels of a key of account "a".
func levels(key string) []limits.Subject {
	return []limits.Subject{{Of: limits.OfAccount, ID: "a"}, {Of: limits.OfKey, ID: key}}
}

// ten is the cost of a request of 10 tokens.
var ten = limits.Cost{Input: 5, Output: 5}

// enter enters a request, and returns the refused limit.
func enter(t *testing.T, q *limits.Limiter, key string, c limits.Cost) (*limits.Permit, string) {
	t.Helper()
	permit, err := q.Enter(t.Context(), request(key, c))
	if refused, ok := errors.AsType[*limits.Refusal](err); ok {
		if len(refused.States) == 0 {
			t.Error("a refusal without the states of the limits")
		}
		return permit, refused.Of + " " + refused.Limit
	}
	if err != nil {
		t.Error(err)
	}
	return permit, ""
}

// usage returns the states of the limits of a key, and its usage.
func usage(t *testing.T, q *limits.Limiter, key string) limits.Usage {
	t.Helper()
	l, err := q.Usage(t.Context(), "a", levels(key))
	if err != nil {
		t.Error(err)
	}
	return l
}

// used is the usage of each request in these tests.
var used = limits.Used{Requests: 1, Tokens: 10, Output: 5}

// A limit per minute refuses at once, and says when the next request may succeed.
func TestLimitedRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newLimiter(&source{ofKey: limits.UsageLimits{RequestsPerMinute: 6}})
		start := time.Now()
		for range 6 {
			permit, refused := enter(t, q, "k", ten)
			if refused != "" || permit.Waited() {
				t.Fatalf("%q, waited %v", refused, permit.Waited())
			}
			permit.Settle(used)
		}
		for range 3 { // a refusal uses nothing
			_, err := q.Enter(t.Context(), request("k", ten))
			refused, ok := errors.AsType[*limits.Refusal](err)
			if !ok || refused.Limit != limits.RequestsPerMinute || refused.Wait() != 10*time.Second || time.Since(start) > 0 {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
		}
		time.Sleep(10 * time.Second)
		if _, refused := enter(t, q, "k", ten); refused != "" {
			t.Errorf("after the wait of the refusal: %s", refused)
		}
		if _, refused := enter(t, q, "other", limits.Cost{}); refused != "" {
			t.Errorf("another key: %s", refused)
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, err := q.Enter(ctx, request("other", ten)); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that has left: %v", err)
		}
		if s := usage(t, q, "other").States[0]; s.Used != 1 {
			t.Errorf("with the request of a client that has left, %d are used", s.Used)
		}
	})
}

// TestLimitedTogether sends 200 requests of a key with 100 tokens per minute at once.
func TestLimitedTogether(t *testing.T) {
	q := newLimiter(&source{
		ofKey:     limits.UsageLimits{TokensPerMinute: 100},
		ofAccount: limits.UsageLimits{TokensPerDay: 1000},
	})
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			permit, why := enter(t, q, "k", ten)
			if why != "" {
				refused.Add(1)
				return
			}
			admitted.Add(1)
			permit.Settle(used)
		})
	}
	all.Wait()
	if admitted.Load() < 10 || admitted.Load() > 11 || admitted.Load()+refused.Load() != 200 {
		t.Errorf("%d admitted, %d refused, want 10", admitted.Load(), refused.Load())
	}
}

func TestLimitedConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{
			ofKey:     limits.UsageLimits{Concurrency: 1, TokensPerDay: 100},
			ofAccount: limits.UsageLimits{Concurrency: 2},
		}
		q := newLimiter(s)
		a1, _ := enter(t, q, "a", ten)
		b1, _ := enter(t, q, "b", ten)
		var running atomic.Int64
		var all sync.WaitGroup
		for _, key := range []string{"a", "b", "c"} {
			all.Go(func() {
				permit, refused := enter(t, q, key, ten)
				if refused != "" {
					t.Errorf("%s: %s", key, refused)
				}
				running.Add(1)
				time.Sleep(time.Second)
				permit.Settle(used)
			})
		}
		synctest.Wait()
		if running.Load() != 0 {
			t.Error("more run than the limit")
		}
		a1.Settle(used)
		synctest.Wait()
		if running.Load() != 1 {
			t.Errorf("%d run after one has ended", running.Load())
		}
		b1.Settle(used)
		all.Wait()
		without := request("a", ten)
		without.Length = -1
		_, err := q.Enter(t.Context(), without)
		if err != nil {
			t.Fatal(err)
		}
		_, err = q.Enter(t.Context(), without)
		refused, _ := errors.AsType[*limits.Refusal](err)
		if refused == nil || refused.Limit != limits.Concurrency || refused.Of != limits.OfKey || refused.Max != 1 ||
			refused.Used != 1 {
			t.Errorf("a full line: %v", err)
		}
		if l := usage(t, q, "a"); l.Day.Tokens != 20 || l.States[0].Used != 30 {
			t.Errorf("a refused request has its reservation still: %+v", l)
		}
		go func() {
			time.Sleep(time.Second)
			s.mu.Lock()
			s.ofKey.Concurrency = 2
			s.mu.Unlock()
			q.Changed("a", limits.Subject{Of: limits.OfKey, ID: "a"})
		}()
		start := time.Now()
		if enter(t, q, "a", ten); time.Since(start) != time.Second {
			t.Errorf("a raised limit takes effect after %v", time.Since(start))
		}
	})
}

func TestLimitedLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{
			ofKey: limits.UsageLimits{TokensPerDay: 100},
			day:   map[string]limits.Sums{"k": {Tokens: 95}, "a": {Tokens: 500}},
		}
		q := newLimiter(s)
		permit, refused := enter(t, q, "k", ten)
		if refused != "" {
			t.Error(refused)
		}
		permit.Settle(used)
		if got := fmt.Sprint(s.crossed); got != "[k tokens_per_day 100]" {
			t.Errorf("crossed: %s", got)
		}
		if _, refused = enter(t, q, "k", ten); refused != "key tokens_per_day" || s.reads.Load() != 1 {
			t.Errorf("usage before the limits: %q after %d reads", refused, s.reads.Load())
		}
		s.mu.Lock()
		s.ofAccount.TokensPerMonth, s.ofKey, s.err = 500, limits.UsageLimits{}, errors.New("the store is away")
		s.mu.Unlock()
		for range 3 {
			if permit, refused = enter(t, q, "k", ten); refused != "" || s.reads.Load() != 2 {
				t.Errorf("without the store: %q after %d reads", refused, s.reads.Load())
			}
			permit.Settle(used)
		}
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		time.Sleep(11 * time.Second)
		if _, refused = enter(t, q, "k", ten); refused != "account tokens_per_month" {
			t.Errorf("once the store is back: %q", refused)
		}

		s.mu.Lock()
		s.ofAccount = limits.UsageLimits{}
		s.mu.Unlock()
		reads := s.reads.Load()
		for range 3 {
			if l := usage(t, q, "free"); l.Day != s.day["free"] || l.Month != l.Day || len(l.States) != 0 {
				t.Errorf("a key without limits: %+v", l)
			}
		}
		if n := s.reads.Load() - reads; n != 1 {
			t.Errorf("%d reads for three calls", n)
		}
		s.mu.Lock()
		s.day["free"] = limits.Sums{Requests: 1}
		s.mu.Unlock()
		time.Sleep(11 * time.Second)
		if usage(t, q, "free").Day.Requests != 1 {
			t.Error("the usage of a key without limits is old")
		}
	})
}

// Keys do not wait until the usage of others was read. Requests of one key share a read.
func TestLimitedLoadsTogether(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	const keys = 20
	var arrived atomic.Int64
	all := make(chan struct{})
	s := &source{ofKey: limits.UsageLimits{RequestsPerDay: 100}}
	s.reading = func(ctx context.Context) {
		if arrived.Add(1) == keys {
			close(all)
		}
		select {
		case <-all:
		case <-ctx.Done():
		}
	}
	q := newLimiter(s)
	var done sync.WaitGroup
	for i := range 3 * keys {
		done.Go(func() {
			permit, err := q.Enter(ctx, request(fmt.Sprint(i%keys), ten))
			if err != nil {
				t.Error(err)
				return
			}
			permit.Settle(used)
		})
	}
	done.Wait()
	if n := s.reads.Load(); n != keys {
		t.Errorf("%d reads for %d keys", n, keys)
	}
}

// Once a key gets limits, its earlier requests count.
func TestLimitedAnew(t *testing.T) {
	s := &source{day: map[string]limits.Sums{}}
	q := newLimiter(s)
	if l := usage(t, q, "k"); l.Day.Tokens != 0 {
		t.Errorf("at first: %+v", l)
	}
	s.mu.Lock()
	s.day["k"], s.ofKey = limits.Sums{Requests: 1, Tokens: 65}, limits.UsageLimits{TokensPerDay: 100}
	s.mu.Unlock()
	if l := usage(t, q, "k"); l.Day.Tokens != 65 || l.States[0].Used != 65 {
		t.Errorf("with a limit: %+v", l)
	}
}

// A request passes any number of levels. Three of them cost as few allocations as two.
func TestLevels(t *testing.T) {
	group := func(id string) limits.Subject { return limits.Subject{Of: "group", ID: id} }
	s := &source{ofKey: limits.UsageLimits{RequestsPerDay: 1e9}, others: map[limits.Subject]limits.UsageLimits{
		group("b"): {RequestsPerDay: 3}, group("c"): {Concurrency: 1},
	}}
	q := newLimiter(s)
	of := func(ids ...string) (r limits.Request) {
		r = request("k", ten)
		r.Levels, r.Length = r.Levels[:1:1], -1
		for _, id := range ids {
			r.Levels = append(r.Levels, group(id))
		}
		r.Levels = append(r.Levels, limits.Subject{Of: limits.OfKey, ID: "k"})
		return r
	}
	expect := func(r limits.Request, want string) *limits.Permit {
		t.Helper()
		permit, err := q.Enter(t.Context(), r)
		got := ""
		if refused, ok := errors.AsType[*limits.Refusal](err); ok {
			got = refused.Of + " " + refused.ID + " " + refused.Limit
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
		return permit
	}
	first := expect(of("a", "b", "c", "d"), "")
	expect(of("c"), "group c concurrency")
	first.Settle(used)
	expect(of("c", "b"), "").Settle(used)
	expect(of("b"), "").Settle(used)
	expect(of("a", "b", "c", "d"), "group b requests_per_day")
	expect(of("a", "c", "d"), "").Settle(used)
	allocations := func(r limits.Request) float64 {
		return testing.AllocsPerRun(100, func() {
			permit, err := q.Enter(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			permit.Settle(used)
		})
	}
	if two, three := allocations(of()), allocations(of("a")); two != three || two > 3 {
		t.Errorf("%v allocations with two levels, %v with three", two, three)
	}
}
