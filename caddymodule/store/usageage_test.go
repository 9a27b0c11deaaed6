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

// deletes is a KV that records the sizes of transactions that delete something.
type deletes struct {
	store.KV
	mu    sync.Mutex
	sizes []int
}

func (k *deletes) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if slices.ContainsFunc(t.Then, func(op store.Op) bool { return op.Delete }) {
		k.mu.Lock()
		k.sizes = append(k.sizes, len(t.Then))
		k.mu.Unlock()
	}
	return k.KV.Txn(ctx, t)
}

// openLater opens a store in a shared KV, whose clock is ahead by so many days.
func openLater(t *testing.T, kv store.KV, days int, o store.Options) *store.Store {
	t.Helper()
	o.Now = func() time.Time { return time.Now().AddDate(0, 0, days) }
	s, err := store.New(kv, o)
	must(t, err)
	return s
}

// Usage is kept by day for 400 days, and by hour for seven days. The gateway that performs the duties for all deletes
// older one when it starts, and every ten minutes.
func TestOldUsageGoes(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		kv := &deletes{KV: share(storetest.OpenBolt(t, path))}
		s := openLater(t, kv, 0, store.Options{})
		defer func() { _ = s.Close() }()
		synctest.Wait()
		hour := func(ago int) string {
			return time.Now().UTC().Add(-time.Duration(ago) * time.Hour).Format(store.HourOnly)
		}
		day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
		var rows []store.UsageRow
		for k := range 5 {
			for ago := range 200 {
				rows = append(rows, usageRow(hour(ago), fmt.Sprintf("k%d", k), "m", 1))
			}
			for ago := range 550 {
				rows = append(rows, usageRow(day(ago), fmt.Sprintf("k%d", k), "m", 1))
			}
		}
		must(t, s.SaveUsage(t.Context(), rows))
		check := func(when string, hours, days int) {
			t.Helper()
			synctest.Wait()
			if got := len(usageRows(t, s, account, hour(1000), hour(0))); got != 5*hours {
				t.Errorf("%s: %d rows of hours", when, got)
			}
			got := usageRows(t, s, account, firstDay, lastDay)
			if len(got) != 5*days || slices.ContainsFunc(got, func(r store.UsageRow) bool { return r.Requests != 1 }) {
				t.Errorf("%s: %d rows of days", when, len(got))
			}
		}
		check("saved", 200, 550)
		if got := usageRows(t, s, account, hour(3), hour(2)); len(got) != 2*5 {
			t.Errorf("%d rows of two hours", len(got))
		}
		time.Sleep(11 * time.Minute)
		check("swept", 7*24+1, 401) // with the present hour and day
		time.Sleep(24 * time.Hour)
		check("a day later", 7*24+1-24, 400)
		if len(kv.sizes) < 2 || slices.Max(kv.sizes) > store.MaxTxnOps {
			t.Errorf("transactions of %v", kv.sizes)
		}
	})
}

// The usage of a gateway that was away counts once it is back, and goes when it is too old.
func TestUsageOfGatewayThatWasAway(t *testing.T) {
	t.Parallel()
	path, local := tempStore(t), tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		kv := share(storetest.OpenBolt(t, path))
		day := time.Now().UTC().Format(time.DateOnly)
		edge := func(later int) *store.Store {
			own, err := store.OpenBolt(local, store.BoltOptions{})
			must(t, err)
			return openLater(t, kv, later, store.Options{Edge: "a", Own: own})
		}
		a := edge(0)
		synctest.Wait() // it has published
		must(t, a.SaveUsage(t.Context(), []store.UsageRow{usageRow(day, "k", "m", 1)}))
		must(t, a.Close())
		for _, away := range []int{130, 402} {
			want := map[int]int{130: 1}[away]
			other := openLater(t, kv, away, store.Options{})
			a = edge(away)
			time.Sleep(11 * time.Minute)
			synctest.Wait()
			for name, s := range map[string]*store.Store{"the other": other, "the one that was away": a} {
				if got := usageRows(t, s, account, firstDay, lastDay); len(got) != want {
					t.Errorf("after %d days at %s: %+v", away, name, got)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
