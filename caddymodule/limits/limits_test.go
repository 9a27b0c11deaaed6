package limits_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
)

// start is noon of the last day of a month.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func level(of string, l limits.UsageLimits) *limits.Level {
	level := limits.NewLevel(limits.Subject{Of: of}, start)
	level.Set(l, 1)
	level.Load(start, limits.Sums{}, limits.Sums{})
	return level
}

// expect reserves, and checks the refusal and its wait.
func expect(t *testing.T, what string, now time.Time, cost limits.Cost, want string, wait time.Duration,
	l ...*limits.Level,
) limits.Reservation {
	t.Helper()
	r, refused := limits.Reserve(now, cost, l...)
	got, due := "", time.Duration(0)
	if refused != nil {
		got, due = refused.Of+" "+refused.Limit, refused.Wait()
	}
	if got != want || due != wait {
		t.Errorf("%s: %q after %v, want %q after %v", what, got, due, want, wait)
	}
	return r
}

func TestRequestsPerMinute(t *testing.T) {
	t.Parallel()
	l := level(limits.OfKey, limits.UsageLimits{RequestsPerMinute: 6})
	one := limits.Cost{Input: 1}
	var last limits.Reservation
	for range 6 {
		last = expect(t, "a full bucket", start, one, "", 0, l)
	}
	expect(t, "the next one", start, one, "key requests_per_minute", 10*time.Second, l)
	if s := l.AppendStates(nil, start)[0]; s.Used != 6 || s.Remaining() != 0 || s.Reset() != time.Minute {
		t.Errorf("an empty bucket: %+v", s)
	}
	last.Settle(start, limits.Used{})
	expect(t, "after one that reached no model", start, one, "", 0, l)
	now := start.Add(time.Minute)
	for range 6 {
		expect(t, "a minute later", now, one, "", 0, l)
	}
	expect(t, "the seventh", now, one, "key requests_per_minute", 10*time.Second, l)
	l.Set(limits.UsageLimits{RequestsPerMinute: 60}, 1)
	expect(t, "a higher limit", now, one, "", 0, l)
	l.Set(limits.UsageLimits{}, 1)
	expect(t, "no limit", now, one, "", 0, l)
	l.Set(limits.UsageLimits{RequestsPerMinute: 1}, 1)
	expect(t, "a new limit", now, one, "", 0, l)
	expect(t, "limit 1", now, one, "key requests_per_minute", time.Minute, l)
	expect(t, "a clock that was set back", now.Add(-time.Hour), one, "key requests_per_minute", time.Minute, l)
}

func TestTokensPerMinute(t *testing.T) {
	t.Parallel()
	l := level(limits.OfKey, limits.UsageLimits{TokensPerMinute: 60})
	large := limits.Cost{Input: 1_000_000}
	r := expect(t, "a request larger than the limit", start, large, "", 0, l)
	expect(t, "another one", start, large, "key tokens_per_minute", time.Minute, l)
	r.Settle(start, limits.Used{Requests: 1, Tokens: 90, Output: 10})
	expect(t, "what was used in excess", start, limits.Cost{}, "key tokens_per_minute", 40*time.Second, l)
	expect(t, "before it has flowed in", start.Add(30*time.Second), limits.Cost{}, "key tokens_per_minute",
		10*time.Second, l)
	expect(t, "once it has flowed in", start.Add(40*time.Second), limits.Cost{}, "", 0, l)
	r = expect(t, "a minute later", start.Add(2*time.Minute), limits.Cost{Input: 20}, "", 0, l)
	r.Settle(start.Add(2*time.Minute), limits.Used{})
	expect(t, "what was given back", start.Add(2*time.Minute), limits.Cost{Input: 50}, "", 0, l)
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	key := level(limits.OfKey, limits.UsageLimits{TokensPerDay: 100, SecondsPerDay: 2})
	account := level(limits.OfAccount, limits.UsageLimits{TokensPerMonth: 150, RequestsPerDay: 3})
	half := limits.Cost{Input: 1, Output: 49}
	use := func(what string, now time.Time, used limits.Used) {
		t.Helper()
		expect(t, what, now, half, "", 0, account, key).Settle(now, used)
	}
	first := expect(t, "the first", start, half, "", 0, account, key)
	second := expect(t, "the second", start, half, "", 0, account, key)
	expect(t, "while those run that may use it up", start, half, "key tokens_per_day", time.Second, account, key)
	first.Settle(start, limits.Used{Requests: 1, Tokens: 60, BusyMillis: 1999})
	second.Settle(start, limits.Used{})
	use("after one that reached no model", start, limits.Used{Requests: 1, Tokens: 1, BusyMillis: 1})
	expect(t, "busy seconds", start, half, "key seconds_per_day", 12*time.Hour, account, key)

	midnight := start.Add(12 * time.Hour)
	use("a day and month later", midnight, limits.Used{Requests: 1, Tokens: 90, BusyMillis: 1})
	over := expect(t, "below the limit", midnight, half, "", 0, account, key)
	tomorrow := midnight.Add(24 * time.Hour)
	over.Settle(tomorrow, limits.Used{Requests: 1, Tokens: 60})
	expect(t, "the month", tomorrow, half, "account tokens_per_month", 30*24*time.Hour, account, key)
	account.Set(limits.UsageLimits{RequestsPerDay: 1}, 1)
	expect(t, "a request that began yesterday and ended today", tomorrow, half, "account requests_per_day", 24*time.Hour,
		account, key)

	account.Set(limits.UsageLimits{RequestsPerDay: 5}, 1)
	use("a higher limit", tomorrow, limits.Used{Requests: 1})
	account.Load(tomorrow, limits.Sums{Requests: 5}, limits.Sums{Requests: 5})
	expect(t, "sums that were loaded", tomorrow, half, "account requests_per_day", 24*time.Hour, account, key)
	account.Load(tomorrow, limits.Sums{}, limits.Sums{})
	expect(t, "sums that others have not published", tomorrow, half, "account requests_per_day", 24*time.Hour,
		account, key)
	if !account.Loaded(tomorrow) || account.Loaded(tomorrow.Add(-24*time.Hour)) {
		t.Error("the sums of a day are taken for those of the day before")
	}
}

// A request counts once, in the day and the month in which it ends.
func TestOverMidnight(t *testing.T) {
	t.Parallel()
	key := level(limits.OfKey, limits.UsageLimits{RequestsPerDay: 10, TokensPerDay: 1000, TokensPerMonth: 1000})
	evening, morning := start.Add(12*time.Hour-time.Second), start.Add(12*time.Hour+time.Second)
	settled := expect(t, "one that ends today", evening, limits.Cost{Output: 5}, "", 0, key)
	over := expect(t, "one that ends tomorrow", evening, limits.Cost{Output: 5}, "", 0, key)
	settled.Settle(evening, limits.Used{Requests: 1, Tokens: 1})
	if day, month := key.Ended(evening); day.Tokens != 1 || month.Tokens != 1 {
		t.Errorf("before midnight: %+v, %+v", day, month)
	}
	if day, month := key.Ended(morning); day != (limits.Sums{}) || month != (limits.Sums{}) {
		t.Errorf("after midnight: %+v, %+v", day, month)
	}
	over.Settle(morning, limits.Used{Requests: 1, Tokens: 300, BusyMillis: 2000})
	want := limits.Sums{Requests: 1, Tokens: 300, BusyMillis: 2000}
	if day, month := key.Ended(morning); day != want || month != want {
		t.Errorf("once they have ended: %+v, %+v", day, month)
	}
	for _, s := range key.AppendStates(nil, morning) {
		if s.Used != map[string]int64{
			limits.RequestsPerDay: 1, limits.TokensPerDay: 300,
			limits.TokensPerMonth: 300,
		}[s.Limit] {
			t.Errorf("a state with reservations: %+v", s)
		}
	}
}

// Once little is left of a quota, requests reserve the answer that the client allows, since clients can
// influence the mean answer.
func TestLittleLeft(t *testing.T) {
	t.Parallel()
	const attempts = 60
	for name, c := range map[string]struct {
		of   limits.UsageLimits
		cost limits.Cost
		want int // requests at a time, at most
	}{
		"a bounded answer":    {limits.UsageLimits{TokensPerDay: 600}, limits.Cost{Input: 5, Output: 10_000}, 2},
		"of a month":          {limits.UsageLimits{TokensPerMonth: 600}, limits.Cost{Input: 5, Output: 10_000}, 2},
		"a small one":         {limits.UsageLimits{TokensPerDay: 600}, limits.Cost{Input: 5, Output: 40}, 10},
		"an unbounded answer": {limits.UsageLimits{TokensPerDay: 30_000}, limits.Cost{Input: 5}, 8},
		"a number beyond all": {limits.UsageLimits{TokensPerDay: 600}, limits.Cost{Input: 5, Output: 1 << 62}, 2},
		"much is left": {
			limits.UsageLimits{TokensPerDay: 1_000_000},
			limits.Cost{Input: 5, Output: 10_000},
			attempts,
		},
		"many at a time":         {limits.UsageLimits{TokensPerDay: 200_000}, limits.Cost{Input: 5, Output: 10_000}, 25},
		"many without a bound":   {limits.UsageLimits{TokensPerMonth: 100_000}, limits.Cost{Input: 5}, 34},
		"much is left, no bound": {limits.UsageLimits{TokensPerDay: 1_000_000}, limits.Cost{Input: 5}, attempts},
		"no limit of tokens": {
			limits.UsageLimits{RequestsPerDay: 1000},
			limits.Cost{Input: 5, Output: 10_000},
			attempts,
		},
		"more than all of a small": {limits.UsageLimits{TokensPerDay: 200}, limits.Cost{Input: 5, Output: 10_000}, 1},
	} {
		key, account := level(limits.OfKey, limits.UsageLimits{}), level(limits.OfAccount, c.of)
		for range 12 { // the client makes the mean small
			expect(t, "training", start, limits.Cost{Input: 14, Output: 1}, "", 0, account, key).
				Settle(start, limits.Used{Requests: 1, Tokens: 15, Output: 1})
		}
		admitted := 0
		for range attempts {
			if _, refused := limits.Reserve(start, c.cost, account, key); refused == nil {
				admitted++
			}
		}
		if admitted == 0 || admitted > c.want || c.want == attempts && admitted < attempts {
			t.Errorf("%s: %d requests are admitted at a time, want %d", name, admitted, c.want)
		}
	}

	// The largest answer so far may come again.
	l := level(limits.OfKey, limits.UsageLimits{TokensPerDay: 600_000})
	expect(t, "a large answer", start, limits.Cost{}, "", 0, l).Settle(start,
		limits.Used{Requests: 1, Tokens: 40_000, Output: 40_000})
	for range 100 {
		expect(t, "small ones", start, limits.Cost{}, "", 0, l).Settle(start, limits.Used{Requests: 1, Tokens: 1, Output: 1})
	}
	expect(t, "one without a bound", start, limits.Cost{}, "", 0, l)
	if used := l.AppendStates(nil, start)[0].Used; used < 80_000 {
		t.Errorf("%d are used with a request that may need 40,000", used)
	}
}

// Reservations of one key do not keep other keys of the account out.
func TestReservationsLeaveOtherKeys(t *testing.T) {
	t.Parallel()
	account := level(limits.OfAccount, limits.UsageLimits{TokensPerDay: 10_000_000, TokensPerMonth: 10_000_000})
	greedy, other := level(limits.OfKey, limits.UsageLimits{}), level(limits.OfKey, limits.UsageLimits{})
	large, small := limits.Cost{Input: 5, Output: 2_000_000_000}, limits.Cost{Input: 5, Output: 5}
	for range 2 {
		expect(t, "a large answer", start, large, "", 0, account, greedy)
	}
	expect(t, "a third one", start, large, "account tokens_per_day", time.Second, account, greedy)
	first := expect(t, "another key", start, small, "", 0, account, other)
	expect(t, "its second request", start, small, "account tokens_per_day", time.Second, account, other)
	first.Settle(start, limits.Used{Requests: 1, Tokens: 10, Output: 5})
	expect(t, "its next one", start, small, "", 0, account, other).
		Settle(start, limits.Used{Requests: 1, Tokens: 10_000_000, Output: 5})
	expect(t, "when all is used", start, small, "account tokens_per_day", 12*time.Hour, account, other)
}

func TestStates(t *testing.T) {
	t.Parallel()
	l := level(limits.OfKey, limits.UsageLimits{RequestsPerMinute: 60, TokensPerDay: 1000, Concurrency: 4})
	expect(t, "one", start, limits.Cost{Output: 100}, "", 0, l).Settle(start,
		limits.Used{Requests: 1, Tokens: 2000, Output: 5})
	got := l.AppendStates(nil, start)
	of := limits.Subject{Of: limits.OfKey}
	want := []limits.State{
		{Limit: limits.RequestsPerMinute, Subject: of, Max: 60, Used: 1, ResetMillis: 1000},
		{Limit: limits.TokensPerDay, Subject: of, Max: 1000, Used: 2000, ResetMillis: 12 * 60 * 60 * 1000},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] || got[1].Remaining() != 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if l.Idle(start.Add(9*time.Minute)) || !l.Idle(start.Add(11*time.Minute)) {
		t.Error("it is idle at the wrong time")
	}
	l.Set(limits.UsageLimits{RequestsPerMinute: 60}, 1)
	r := expect(t, "one", start, limits.Cost{}, "", 0, l)
	if l.Idle(start.Add(time.Hour)) {
		t.Error("it is idle while a request runs")
	}
	r.Settle(start, limits.Used{})
}

func TestCrossed(t *testing.T) {
	t.Parallel()
	of := limits.UsageLimits{TokensPerDay: 100, TokensPerMonth: 1000, RequestsPerMinute: 1}
	l := level(limits.OfKey, limits.UsageLimits{})
	for _, c := range []struct {
		hours, tokens int
		want          string
	}{
		{0, 79, ""},
		{0, 1, "tokens_per_day 80,"},
		{0, 10, ""},
		{0, 10, "tokens_per_day 100,"},
		{1, 10, ""},
		{12, 100, "tokens_per_day 100,"},
		{36, 850, "tokens_per_day 100,tokens_per_month 80,"},
	} {
		now := start.Add(time.Duration(c.hours) * time.Hour)
		l.Set(limits.UsageLimits{}, 1) // the request began before there were limits
		r, _ := limits.Reserve(now, limits.Cost{}, l)
		l.Set(of, 1)
		r.Settle(now, limits.Used{Requests: 1, Tokens: int64(c.tokens)})
		got := ""
		for _, crossed := range l.Crossed(now) {
			got += fmt.Sprint(crossed.Limit, " ", crossed.Percent, ",")
		}
		if got != c.want {
			t.Errorf("%d tokens after %d hours: %q, want %q", c.tokens, c.hours, got, c.want)
		}
	}
}

// TestNeverMore sends random requests at random times. Each window admits at most the
// limit and one request, and all reservations are released.
func TestNeverMore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		of := limits.UsageLimits{
			RequestsPerMinute: 1 + random.IntN(30), TokensPerMinute: 1 + random.IntN(3000),
			RequestsPerDay: 1 + random.IntN(300), TokensPerDay: 1 + random.IntN(30_000),
		}
		key, account := level(limits.OfKey, of), level(limits.OfAccount, limits.UsageLimits{RequestsPerDay: 100})
		const maxTokens = 100 // of a request
		type open struct {
			limits.Reservation
			used int64
		}
		var running []open
		var day, month int64 // tokens and requests that were used
		now := start
		var admitted, released []time.Time
		lately := func(times []time.Time) (n int) {
			for _, t := range times {
				if now.Sub(t) < time.Minute {
					n++
				}
			}
			return n
		}
		for range 2000 {
			now = now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
			if len(running) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(running))
				o := running[i]
				running = append(running[:i], running[i+1:]...)
				if random.IntN(4) == 0 {
					o.Settle(now, limits.Used{})
					released = append(released, now)
					continue
				}
				o.Settle(now, limits.Used{Requests: 1, Tokens: o.used, Output: o.used})
				day += o.used
				month++
				continue
			}
			used := int64(1 + random.IntN(maxTokens))
			r, refused := limits.Reserve(now, limits.Cost{Input: used}, account, key)
			if refused != nil {
				continue
			}
			if day >= int64(of.TokensPerDay) || month >= int64(of.RequestsPerDay) || month >= 100 {
				t.Fatalf("seed %d: admitted after %d tokens and %d requests of %+v", seed, day, month, of)
			}
			running = append(running, open{r, used})
			admitted = append(admitted, now)
			// The bucket may be full when the minute begins, and refills meanwhile.
			if n := lately(admitted); n > 2*of.RequestsPerMinute+lately(released)+1 {
				t.Fatalf("seed %d: %d requests in a minute, of %d", seed, n, of.RequestsPerMinute)
			}
		}
		for _, o := range running {
			o.Settle(now, limits.Used{})
		}
		later := now.Add(time.Hour)
		for _, s := range key.AppendStates(nil, later) {
			want := map[string]int64{limits.RequestsPerDay: month, limits.TokensPerDay: day}[s.Limit]
			if later.Day() == start.Day() && s.Used != want {
				t.Errorf("seed %d: %s has %d used in the end, want %d", seed, s.Limit, s.Used, want)
			}
		}
	}
}
