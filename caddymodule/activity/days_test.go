package activity_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// All days are there, in their order, those without requests too; a request
// counts for the day in UTC on which it began.
func TestDays(t *testing.T) {
	t.Parallel()
	st := storetest.New(t)
	now := time.Date(2026, 3, 2, 0, 30, 0, 0, time.UTC)
	l := newLog(t, activity.Options{Store: st, Now: func() time.Time { return now }})
	for _, r := range []struct {
		at     time.Time
		status int
	}{
		{now, 200},
		{now.Add(-30 * time.Minute), 200},          // midnight
		{now.Add(-30*time.Minute - 1), 500},        // the last moment of the day before
		{now.In(time.FixedZone("", -5*3600)), 404}, // still the first of March there
		{time.Date(2026, 2, 27, 1, 0, 0, 0, time.UTC), 399},
		{time.Date(2026, 2, 20, 1, 0, 0, 0, time.UTC), 200}, // too old
		{time.Date(2026, 3, 3, 1, 0, 0, 0, time.UTC), 200},  // of a clock that was wrong
	} {
		l.Record(account, activity.Request{Time: r.at, Status: r.status, InputTokens: 100, OutputTokens: 10})
	}
	l.Record("other", activity.Request{Time: now, Status: 200})
	want := []store.UsageDay{
		{Account: account, Day: "2026-02-26"},
		{Account: account, Day: "2026-02-27", Requests: 1, InputTokens: 100, OutputTokens: 10},
		{Account: account, Day: "2026-02-28"},
		{Account: account, Day: "2026-03-01", Requests: 1, Errors: 1, InputTokens: 100, OutputTokens: 10},
		{Account: account, Day: "2026-03-02", Requests: 3, Errors: 1, InputTokens: 300, OutputTokens: 30},
	}
	got, err := l.Days(t.Context(), account, len(want), nil)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("day %d: %+v, not %+v", i, got[i], want[i])
		}
	}
	for n, want := range map[int]int{-1: 1, 0: 1, 1: 1, 30: 30, 366: 366, 1 << 30: 366} {
		if got, err := l.Days(t.Context(), account, n, nil); err != nil || len(got) != want || got[len(got)-1].Day != "2026-03-02" {
			t.Errorf("the last %d days are %d, %v", n, len(got), err)
		}
	}
}

// Sums reach the store within ten seconds, once, in the day that they are of;
// a restart forgets nothing.
func TestDaysAreSaved(t *testing.T) {
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
		time.Sleep(6 * time.Second)
		l.Record(account, request(2))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		saved, err := st.Usage(context.Background(), account, "2000-01-01", nil)
		if err != nil || len(saved) != 2 || saved[0].Requests+saved[1].Requests != 101 {
			t.Errorf("saved: %+v, %v", saved, err)
		}
		check := func(when string) {
			t.Helper()
			days, err := l.Days(context.Background(), account, 2, nil)
			if err != nil || len(days) != 2 || days[0].Requests != 100 || days[1].Requests != 1 || days[0].InputTokens != 10_000 {
				t.Errorf("%s: %+v, %v", when, days, err)
			}
		}
		check("saved")
		time.Sleep(5 * time.Minute)
		check("later")
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		check("restarted")
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
			if got := today(t, l, account); got.Requests != int64(i+1) || got.InputTokens != int64(i+1)*100 {
				t.Errorf("after %d requests: %+v", i+1, got)
			}
		}
		closeBoth(t, l, st)
		l, _, _ = open(t, path)
		if got := today(t, l, account); got.Requests != 3 {
			t.Errorf("restarted: %+v", got)
		}
	})
}

// Sums that cannot be written are kept, and shown, until they can.
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
		if got := today(t, l, account); got.Requests != 2 || got.InputTokens != 200 {
			t.Errorf("while it fails: %+v", got)
		}
		kv.fails.Store(false)
		time.Sleep(61 * time.Second)
		if got := today(t, l, account); got.Requests != 2 {
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
		if got := today(t, l, account); got.Requests != 3 || len(l.Recent(account)) != 3 {
			t.Errorf("restarted: %+v and %v", got, ids(l, account))
		}
	})
}

// Sums that are on their way to the store are not missing meanwhile.
func TestDaysWhileSaving(t *testing.T) {
	t.Parallel()
	l, _, kv := open(t, filepath.Join(t.TempDir(), "gateway.db"))
	l.Record(account, request(1))
	asked := make(chan int64, 1)
	ask := func() {
		go func() {
			days, err := l.Days(context.Background(), account, 1, nil)
			if err != nil {
				t.Error(err)
			}
			var requests int64
			for _, d := range days {
				requests += d.Requests
			}
			asked <- requests
		}()
		time.Sleep(20 * time.Millisecond)
	}
	kv.before.Store(&ask)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	select {
	case got := <-asked:
		if got != 1 {
			t.Errorf("%d requests while they were saved", got)
		}
	case <-time.After(time.Minute):
		t.Error("no answer")
	}
}

// An account that is gone does not keep the others from being saved, and is
// forgotten.
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
		if got, err := st.Usage(context.Background(), account, "2000-01-01", nil); err != nil || len(got) != 1 || got[0].Requests != 1 {
			t.Errorf("saved: %+v, %v", got, err)
		}
		l.Record("gone", request(3))
		closeBoth(t, l, st)
	})
}
