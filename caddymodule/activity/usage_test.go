package activity_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// A request counts for the day in UTC on which it ended, its key and its deployment.
func TestUsage(t *testing.T) {
	t.Parallel()
	st := storetest.New(t)
	now := time.Date(2026, 3, 2, 0, 30, 0, 0, time.UTC)
	l := newLog(t, activity.Options{Store: st})
	for _, r := range []struct {
		at         time.Time
		key, class string
	}{
		{now, "a", ""},
		// Midnight and the last moment before it.
		{now.Add(-30 * time.Minute), "a", ""},
		{now.Add(-30*time.Minute - 1), "a", activity.GatewayError},
		{now.In(time.FixedZone("", -5*3600)), "b", activity.CallerError}, // still the first of March there
		{time.Date(2026, 2, 27, 1, 0, 0, 0, time.UTC), "b", activity.PolicyError},
		{time.Date(2026, 2, 20, 1, 0, 0, 0, time.UTC), "b", activity.UpstreamError}, // too old
		{time.Date(2026, 3, 3, 1, 0, 0, 0, time.UTC), "b", ""},                      // of a clock that was wrong
	} {
		l.Record(account, activity.Request{
			Time: r.at, KeyID: r.key, KeyName: "laptop", Deployment: "m", ErrorClass: r.class, InputTokens: 100,
			CachedTokens: 50, OutputTokens: 10, ReasoningTokens: 5,
			WaitMillis: 20, FirstTokenMillis: 300, TokensPerSecond: 40, BusyMillis: 900, Estimated: r.class != "",
		})
	}
	l.Record("other", activity.Request{Time: now, Status: 200})
	at := func(bucket int) (h store.Histogram) {
		h[bucket] = 1
		return h
	}
	one := store.Usage{
		Requests: 1, ModelRequests: 1, InputTokens: 100, CachedTokens: 50, OutputTokens: 10,
		ReasoningTokens: 5, FirstTokens: 1, FirstTokenMillis: 300, BusyMillis: 900,
		FirstTokenTimes: at(5), Waits: at(1), Speeds: at(9),
	}
	row := func(day, key string, changes ...func(*store.Usage)) store.UsageRow {
		r := store.UsageRow{Account: account, Day: day, Key: key, KeyName: "laptop", Deployment: "m"}
		for _, change := range changes {
			u := one
			change(&u)
			r.Add(u)
		}
		return r
	}
	good := func(*store.Usage) {}
	bad := func(class *int64) { *class = 1 }
	want := []store.UsageRow{
		row("2026-02-27", "b", func(u *store.Usage) {
			bad(&u.PolicyErrors)
			u.EstimatedRequests,
				u.EstimatedTokens = 1, 110
		}),
		row("2026-03-01", "a", func(u *store.Usage) {
			bad(&u.GatewayErrors)
			u.EstimatedRequests,
				u.EstimatedTokens = 1, 110
		}),
		row("2026-03-02", "a", good, good),
		row("2026-03-02", "b", func(u *store.Usage) {
			bad(&u.CallerErrors)
			u.EstimatedRequests,
				u.EstimatedTokens = 1, 110
		}),
	}
	var got []store.UsageRow
	err := l.EachUsage(t.Context(), account, "", "2026-02-26", "2026-03-02", func(r store.UsageRow) error {
		got = append(got, r)
		return nil
	})
	slices.SortFunc(got, func(a, b store.UsageRow) int { return cmp.Compare(a.Day+a.Key, b.Day+b.Key) })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, not %+v, %v", got, want, err)
	}
}

// Rows are saved within ten seconds, once, in their day. After a restart, the log continues with them. It
// drops the rows of idle keys.
func TestUsageIsSaved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, kv := open(t, path)
		time.Sleep(24*time.Hour - 5*time.Second) // the bubble begins at midnight
		before := kv.writes.Load()
		for range 100 {
			l.Record(account, request(1))
		}
		if got := kv.writes.Load(); got != before {
			t.Errorf("%d writes with the requests", got-before)
		}
		time.Sleep(11 * time.Second)
		l.Record(account, request(2))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		requests := int64(0)
		err := st.EachUsage(context.Background(), account, "", "1999-01-01", "2001-01-01", func(r store.UsageRow) error {
			requests += r.Requests
			return nil
		})
		if err != nil || requests != 101 {
			t.Errorf("saved: %d, %v", requests, err)
		}
		check := func(when string, second int64) {
			t.Helper()
			days := used(t, l, account)
			if len(days) != 2 || days["2000-01-01"].Requests != 100 || days["2000-01-02"].Requests != second ||
				days["2000-01-01"].InputTokens != 10_000 {
				t.Errorf("%s: %+v", when, days)
			}
		}
		check("saved", 1)
		time.Sleep(5 * time.Minute)
		check("later", 1)
		if n := l.Rows(); n != 0 {
			t.Errorf("%d rows in memory", n)
		}
		l.Record(account, request(3))
		time.Sleep(10 * time.Second)
		check("after a rest", 2)
		closeBoth(t, l, st)
		l, st, _ = open(t, path)
		check("restarted", 2)
		l.Record(account, request(4))
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		check("restarted again", 3)
	})
}

// A request counts in the day in which it has ended, as in limits.
func TestUsageOverMidnight(t *testing.T) {
	t.Parallel()
	l, _, _ := open(t, filepath.Join(t.TempDir(), "gateway.db"))
	r := request(1)
	r.Time, r.DurationMillis = time.Date(2026, 11, 30, 23, 59, 50, 0, time.UTC), 15_000
	l.Record(account, r)
	r.DurationMillis = 5_000
	l.Record(account, r)
	hours := map[string]int64{}
	err := l.EachUsage(t.Context(), account, "", "2026-11-30T00", "2026-12-01T23", func(r store.UsageRow) error {
		hours[r.Day] += r.Requests
		return nil
	})
	if err != nil || len(hours) != 2 || hours["2026-11-30T23"] != 1 || hours["2026-12-01T00"] != 1 {
		t.Errorf("by hour: %v, %v", hours, err)
	}
	if days := used(t, l, account); len(days) != 2 || days["2026-11-30"].Requests != 1 ||
		days["2026-12-01"].Requests != 1 {
		t.Errorf("by day: %+v", days)
	}
}

// copyOf copies the file of an open store, as a killed process leaves it.
func copyOf(t *testing.T, path string) string {
	t.Helper()
	killed := filepath.Join(t.TempDir(), "killed.db")
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(killed, data, 0o600)
	}
	must(t, err)
	return killed
}

// A killed process loses at most the usage of ten seconds, and as much of quotas, which count it.
func TestUsageOfKilledProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := open(t, path)
		for i := range 30 { // a request a second
			l.Record(account, request(i))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		next, _, _ := open(t, copyOf(t, path))
		if got := total(t, next, account); got.Requests < 20 {
			t.Errorf("%d of 30 requests", got.Requests)
		}
	})
}

// A write that fails may have taken effect. Trying it again counts nothing twice.
func TestSavingTakesEffectAndFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, kv := open(t, path)
		for i := range 3 {
			kv.unsure.Store(true)
			kv.fails.Store(true)
			l.Record(account, request(i))
			time.Sleep(time.Minute)
			kv.fails.Store(false)
			time.Sleep(time.Minute)
			if got := total(t, l, account); got.Requests != int64(i+1) || got.InputTokens != int64(i+1)*100 {
				t.Errorf("after %d requests: %+v", i+1, got)
			}
		}
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		if got := total(t, l, account); got.Requests != 3 {
			t.Errorf("restarted: %+v", got)
		}
	})
}

// Sums that cannot be written are shown, and written later.
func TestSavingFails(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, kv := open(t, path)
		l.Record(account, request(1))
		kv.fails.Store(true)
		time.Sleep(2 * time.Minute)
		l.Record(account, request(2))
		time.Sleep(2 * time.Minute)
		if got := total(t, l, account); got.Requests != 2 || got.InputTokens != 200 {
			t.Errorf("while it fails: %+v", got)
		}
		kv.fails.Store(false)
		time.Sleep(61 * time.Second)
		if got := total(t, l, account); got.Requests != 2 {
			t.Errorf("when it works again: %+v", got)
		}
		kv.fails.Store(true)
		if err := l.Close(); err != nil {
			t.Errorf("something was still to be saved: %v", err)
		}
		l.Record(account, request(3))
		if err := l.Close(); !errors.Is(err, errDisk) {
			t.Errorf("closing with unsaved requests: %v", err)
		}
		kv.fails.Store(false)
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		synctest.Wait()
		if got := total(t, l, account); got.Requests != 3 || len(l.Recent(account)) != 3 {
			t.Errorf("restarted: %+v and %v", got, ids(l, account))
		}
	})
}

// Usage is not missing while it is being written.
func TestUsageWhileSaving(t *testing.T) {
	t.Parallel()
	l, _, kv := open(t, filepath.Join(t.TempDir(), "gateway.db"))
	asked := make(chan int64, 1)
	ask := func() {
		go func() { asked <- total(t, l, account).Requests }()
		time.Sleep(20 * time.Millisecond)
	}
	kv.before.Store(&ask)
	l.Record(account, request(1)) // the log may save it at once, or when it is closed
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got := wait.For(t, asked, "the answer"); got != 1 {
		t.Errorf("%d requests while they were saved", got)
	}
}

// A removed account is dropped, and others are still saved.
func TestAccountIsGone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, st, _ := open(t, path)
		l.Record("gone", request(1))
		l.Record(account, request(2))
		if len(l.Recent("gone")) != 1 {
			t.Error("not recorded")
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := l.Recent("gone"); len(got) != 0 {
			t.Errorf("still remembered: %v", got)
		}
		if got := total(t, l, account); got.Requests != 1 {
			t.Errorf("saved: %+v", got)
		}
		l.Record("gone", request(3))
		closeBoth(t, l, st)
	})
}
