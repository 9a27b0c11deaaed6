package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// slowKV records the sizes and the times of transactions that delete something.
type slowKV struct {
	store.KV
	mu    sync.Mutex
	sizes []int
	times []time.Time
}

func (k *slowKV) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if slices.ContainsFunc(t.Then, func(op store.Op) bool { return op.Delete }) {
		k.mu.Lock()
		k.sizes, k.times = append(k.sizes, len(t.Then)), append(k.times, time.Now())
		k.mu.Unlock()
	}
	return k.KV.Txn(ctx, t)
}

// openLater opens a store in a shared KV, whose clock is ahead by so many days.
func openLater(t *testing.T, kv store.KV, days int, o store.Options) *store.Store {
	t.Helper()
	o.Now = func() time.Time { return time.Now().AddDate(0, 0, days) }
	s, err := store.New(kv, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Hours are kept for 48 hours, apart from days.
func TestHoursAreDropped(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv := &slowKV{KV: share(storetest.OpenBolt(t, path))}
		s := openLater(t, kv, 0, store.Options{})
		defer func() { _ = s.Close() }()
		var rows []store.UsageRow
		hour := func(ago int) string {
			return time.Now().UTC().Add(-time.Duration(ago) * time.Hour).Format(store.HourOnly)
		}
		for ago := range 60 {
			for k := range 20 {
				rows = append(rows, usageRow(hour(ago), fmt.Sprintf("k%d", k), "m", 1))
			}
		}
		rows = append(rows, usageRow(hour(5)[:len(time.DateOnly)], "k", "m", 7))
		if err := s.SaveUsage(ctx, rows); err != nil {
			t.Fatal(err)
		}
		if got := usageRows(t, s, account, hour(59), hour(0)); len(got) != 60*20 {
			t.Errorf("%d rows of hours", len(got))
		}
		if got := usageRows(t, s, account, hour(3), hour(2)); len(got) != 2*20 {
			t.Errorf("%d rows of two hours", len(got))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := usageRows(t, s, account, hour(100), hour(0)); len(got) != 48*20 {
			t.Errorf("%d rows of hours are left", len(got))
		}
		if got := usageRows(t, s, account, firstDay, lastDay); len(got) != 1 || got[0].Requests != 7 {
			t.Errorf("days: %v", got)
		}
		if slices.Max(kv.sizes) > store.MaxTxnOps {
			t.Errorf("transactions of %v", kv.sizes)
		}
	})
}

// Usage is kept by day for 92 days, until its month is older, then by month for five years.
// That changes no sum at any moment. A gateway folds when it starts, and each month.
func TestUsageIsFolded(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv := &slowKV{KV: share(storetest.OpenBolt(t, path))}
		s := openLater(t, kv, 0, store.Options{}) // on 1 January 2000
		synctest.Wait()                           // it has looked for usage to fold
		later := func(days int) {
			t.Helper()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openLater(t, kv, days, store.Options{})
		}
		defer func() { _ = s.Close() }()
		var rows []store.UsageRow
		var want store.Usage
		for days := range 150 {
			for k := range 3 {
				rows = append(rows, usageRow(time.Now().UTC().AddDate(0, 0, -days).Format(time.DateOnly), fmt.Sprintf("k%d", k),
					"m", int64(days)))
				want.Add(rows[len(rows)-1].Usage)
			}
		}
		if err := s.SaveUsage(ctx, rows); err != nil {
			t.Fatal(err)
		}
		check := func(when string) (rows int) {
			t.Helper()
			var got store.Usage
			for _, r := range usageRows(t, s, account, firstDay, lastDay) {
				got.Add(r.Usage)
				rows++
			}
			if got != want {
				t.Errorf("%s: %d requests, not %d", when, got.Requests, want.Requests)
			}
			return rows
		}
		later(0)
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			check("while folding")
		}
		months := map[string]int{}
		for _, r := range usageRows(t, s, account, firstDay, lastDay) {
			months[r.Day[:7]]++
		}
		// 92 days ago it was 1 October: August and September are folded.
		if got := fmt.Sprint(months); got != "map[1999-08:3 1999-09:3 1999-10:93 1999-11:90 1999-12:93 2000-01:3]" {
			t.Errorf("rows by month: %s", got)
		}
		// A folded month counts whole if one of its days is asked for.
		for days, n := range map[[2]string]int{
			{"1999-08-20", "1999-09-02"}: 6, {"1999-08-31", "1999-08-31"}: 3,
			{"1999-09-30", "1999-10-01"}: 6, {"1999-10-01", "1999-10-01"}: 3,
		} {
			if got := usageRows(t, s, account, days[0], days[1]); len(got) != n {
				t.Errorf("%s: %d rows", days, len(got))
			}
		}
		for i, n := range kv.sizes {
			if n > store.MaxTxnOps || i > 0 && kv.times[i].Sub(kv.times[i-1]) < time.Second {
				t.Errorf("transaction %d has %d operations, %v after the last", i, n, kv.times[i].Sub(kv.times[max(i-1, 0)]))
			}
		}
		// What arrives late is added.
		late := usageRow("1999-09-30", "k1", "m", 1000)
		want.Add(late.Usage)
		if err := s.SaveUsage(ctx, []store.UsageRow{late}); err != nil {
			t.Fatal(err)
		}
		if n := check("late"); n != 286 {
			t.Errorf("%d rows with the late one", n)
		}
		later(31)
		time.Sleep(time.Minute)
		if n := check("a month later"); n != 9+90+93+3 {
			t.Errorf("%d rows a month later", n)
		}
		later(366)
		time.Sleep(time.Minute)
		if n := check("a year later"); n != 18 {
			t.Errorf("%d rows a year later", n)
		}
		later(5*365 + 7) // 6 January 2005
		time.Sleep(time.Minute)
		if got := usageRows(t, s, account, firstDay, lastDay); len(got) != 3 || got[0].Day != "2000-01" {
			t.Errorf("five years later there are %d rows", len(got))
		}
	})
}

// A gateway that was away for long does not publish folded rows, which would count twice.
func TestFoldedUsageIsNotPublished(t *testing.T) {
	t.Parallel()
	path, local := tempStore(t), tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv := share(storetest.OpenBolt(t, path))
		day := time.Now().UTC().Format(time.DateOnly)
		edge := func(later int) *store.Store {
			own, err := store.OpenBolt(local, store.BoltOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return openLater(t, kv, later, store.Options{Edge: "a", Own: own})
		}
		a := edge(0)
		if err := a.SaveUsage(ctx, []store.UsageRow{usageRow(day, "k", "m", 1)}); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		const away = 130
		other := openLater(t, kv, away, store.Options{})
		time.Sleep(time.Minute)
		a = edge(away)
		time.Sleep(time.Minute)
		want := []store.UsageRow{usageRow(day[:7], "k", "m", 1)}
		for name, s := range map[string]*store.Store{"the other": other, "the one that was away": a} {
			if got := usageRows(t, s, account, firstDay, lastDay); !slices.Equal(got, want) {
				t.Errorf("at %s: %+v", name, got)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
