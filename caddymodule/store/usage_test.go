package store_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// usageRow returns a row with sums that depend on n.
func usageRow(day, key, deployment string, n int64) store.UsageRow {
	return store.UsageRow{
		Account: account, Day: day, Key: key, Deployment: deployment, KeyName: "name of " + key,
		Usage: store.Usage{
			Requests: n, CallerErrors: 2 * n, PolicyErrors: 3 * n, GatewayErrors: 4 * n, UpstreamErrors: 5 * n,
			InputTokens: 6 * n, CachedTokens: 7 * n,
			OutputTokens: 8 * n, ReasoningTokens: 9 * n, EstimatedRequests: 10 * n, EstimatedTokens: 11 * n, BusyMillis: 12 * n,
			FirstTokens: 13 * n, FirstTokenMillis: 14 * n,
			FirstTokenTimes: store.Histogram{3: uint32(15 * n)}, Waits: store.Histogram{uint32(16 * n)},
			Speeds: store.Histogram{15: uint32(17 * n)},
		},
	}
}

// usageRows returns the rows of an account, the sums of gateways together, in order.
func usageRows(t *testing.T, s *store.Store, account, from, to string) []store.UsageRow {
	t.Helper()
	sums := map[store.UsageRow]store.Usage{}
	if err := s.EachUsage(context.Background(), account, "", from, to, func(r store.UsageRow) error {
		u := r.Usage
		r.Usage = store.Usage{}
		u.Add(sums[r])
		sums[r] = u
		return nil
	}); err != nil {
		t.Errorf("from %s to %s: %v", from, to, err)
	}
	var rows []store.UsageRow
	for r, u := range sums {
		r.Usage = u
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b store.UsageRow) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Deployment, b.Deployment))
	})
	return rows
}

const firstDay, lastDay = "1970-01-01", "2099-12-31"

func TestUsage(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	if err := s.SaveUsage(t.Context(), nil); err != nil {
		t.Error(err)
	}
	a, b := usageRow("2026-11-21", "k", "org/model:8b", 3), usageRow("2026-11-20", "k", "", 1)
	nobody := store.UsageRow{Account: "nobody", Day: "2026-11-21", Key: "k"}
	must(t, s.SaveUsage(t.Context(), []store.UsageRow{a, b, nobody}))
	s = reopen(t, s, path)
	a = usageRow("2026-11-21", "k", "org/model:8b", 10)
	c := usageRow("2026-12-01", "l", "m", 5)
	must(t, s.SaveUsage(t.Context(), []store.UsageRow{a, c}))
	for days, want := range map[[2]string][]store.UsageRow{
		{"2026-01-01", "2026-12-31"}: {b, a, c},
		{"2026-11-21", "2026-12-01"}: {a, c},
		{"2026-11-20", "2026-11-20"}: {b},
		{"2026-12-02", "2026-12-31"}: nil,
	} {
		if got := usageRows(t, s, account, days[0], days[1]); !slices.Equal(got, want) {
			t.Errorf("%s: %+v", days, got)
		}
	}
	for of, want := range map[store.UsageRow]store.Usage{
		a: a.Usage, b: b.Usage, usageRow("2026-11-22", "k", "m", 0): {},
		nobody: {},
	} {
		if got, err := s.OwnUsage(t.Context(), of); err != nil || got != want {
			t.Errorf("own usage of %+v: %+v, %v", of, got, err)
		}
	}
	if got := usageRows(t, s, "other", firstDay, lastDay); got != nil {
		t.Errorf("usage of another account %+v", got)
	}
	for _, wrong := range []store.UsageRow{
		usageRow("", "k", "", 1), usageRow("2026-1-1", "k", "", 1),
		usageRow("2026-02-30", "k", "", 1), usageRow("../x", "k", "", 1), usageRow("2026-01-01", "a/b", "", 1),
	} {
		wantError(t, errOf(s.OwnUsage(t.Context(), wrong)), store.ErrInvalid)
		wantError(t, s.SaveUsage(t.Context(), []store.UsageRow{a, wrong}), store.ErrInvalid)
	}
	ignore := func(store.UsageRow) error { return nil }
	wantError(t, s.EachUsage(t.Context(), account, "", "x", lastDay, ignore), store.ErrInvalid, "not a day")
	wantError(t, s.EachUsage(t.Context(), account, "a/b", firstDay, lastDay, ignore), store.ErrInvalid, "not the id")
	wantError(t, s.EachUsage(t.Context(), account, "", firstDay, "x", ignore), store.ErrInvalid, "not a day")
	wantError(t, s.EachUsage(t.Context(), "default/2026", "", firstDay, lastDay, ignore), store.ErrNotFound)
}

// Two gateways share a store, and each has a KV of its own. The sum is exact at each of them: for
// its own requests at once, for those of the other within half a minute. A restart loses
// nothing, published or not.
// The usage of many keys is one transaction of a file: each is a sync of the disk.
func TestUsageOfManyKeys(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	s, err := store.New(kv, store.Options{})
	must(t, err)
	revision := func() int64 {
		t.Helper()
		r, err := kv.Each(t.Context(), store.Prefix("none/"), func(store.Item) error { return nil })
		must(t, err)
		return r
	}
	var rows []store.UsageRow
	for i := range 1000 {
		rows = append(rows, usageRow("2026-11-21", fmt.Sprint("key_", i), "qwen3:8b", int64(i)))
	}
	before := revision()
	must(t, s.SaveUsage(t.Context(), rows))
	if n := revision() - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	if got := usageRows(t, s, account, firstDay, lastDay); len(got) != len(rows) {
		t.Errorf("%d rows", len(got))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestUsageOfSeveralGateways(t *testing.T) {
	t.Parallel()
	shared, dir := tempStore(t), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv := storetest.OpenBolt(t, shared)
		today, old := time.Now().UTC().Format(time.DateOnly), time.Now().UTC().AddDate(0, 0, -10).Format(time.DateOnly)
		edges := map[string]*store.Store{}
		open := func(edge string) {
			local, err := store.OpenBolt(filepath.Join(dir, edge), store.BoltOptions{})
			must(t, err)
			if edges[edge], err = store.New(share(kv), store.Options{Edge: edge, Own: local}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // until it has published what was left
		}
		row := func(day string, n int64) store.UsageRow { return usageRow(day, "k", "m", n) }
		save := func(edge string, rows ...store.UsageRow) {
			t.Helper()
			if err := edges[edge].SaveUsage(ctx, rows); err != nil {
				t.Error(err)
			}
		}
		check := func(edge string, want ...store.UsageRow) {
			t.Helper()
			if got := usageRows(t, edges[edge], account, firstDay, lastDay); !slices.Equal(got, want) {
				t.Errorf("at %s: %+v, not %+v", edge, got, want)
			}
		}
		open("a")
		open("b")
		defer func() { _ = edges["b"].Close() }()
		save("a", row(today, 100), row(old, 7))
		save("b", row(today, 20))
		check("a", row(old, 7), row(today, 100))
		check("b", row(today, 20))
		time.Sleep(31 * time.Second)
		save("a", row(today, 103))
		check("a", row(old, 7), row(today, 123))
		check("b", row(old, 7), row(today, 120))
		if err := edges["a"].PublishUsage(ctx); err != nil {
			t.Error(err)
		}
		check("b", row(old, 7), row(today, 123))
		save("a", row(today, 104))
		if err := edges["a"].Close(); err != nil {
			t.Error(err)
		}
		check("b", row(old, 7), row(today, 124))
		open("a")
		defer func() { _ = edges["a"].Close() }()
		for day, want := range map[string]int64{today: 104, old: 7} { // one from each KV
			if got, err := edges["a"].OwnUsage(ctx, row(day, 0)); err != nil || got != row(day, want).Usage {
				t.Errorf("own usage of %s after a restart: %+v, %v", day, got, err)
			}
		}
	})
}

// Rows of another gateway count as published, and those of this gateway as saved.
func TestUsageOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := storetest.Share(storetest.OpenBolt(t, tempStore(t)))
		edge := func(name string) *store.Store {
			s, err := store.New(shared, store.Options{Edge: name, Own: storetest.OpenBolt(t, tempStore(t))})
			must(t, err)
			t.Cleanup(func() { _ = s.Close() })
			synctest.Wait() // until it has published, as it does at the start
			return s
		}
		a, b := edge("a"), edge("b")
		day := time.Now().UTC().Format(time.DateOnly)
		save := func(s *store.Store, n int64) {
			if err := s.SaveUsage(t.Context(), []store.UsageRow{usageRow(day, "k", "org/m", n)}); err != nil {
				t.Error(err)
			}
		}
		publish := func() {
			if err := b.PublishUsage(t.Context()); err != nil {
				t.Error(err)
			}
		}
		expect := func(s *store.Store, want int64) {
			t.Helper()
			sum := int64(0)
			for _, r := range usageRows(t, s, account, day, day) {
				sum += r.Requests
			}
			if sum != want {
				t.Errorf("%d requests, not %d", sum, want)
			}
		}
		save(b, 5)
		publish()
		save(b, 7)
		save(a, 100)
		expect(a, 105)
		expect(b, 7)
		publish()
		expect(a, 107)
	})
}

// countingKV counts the reads of usage.
type countingKV struct {
	store.KV
	reads int
}

func (kv *countingKV) Each(ctx context.Context, span store.Span, f func(store.Item) error) (int64, error) {
	if span.Contains(store.DirUsage + account + "/2026-11-01/k/x") {
		kv.reads++
	}
	return kv.KV.Each(ctx, span, f)
}

// The usage of a key is that of its days, without other keys. Without a cluster, each day is read once.
func TestKeyUsageReadsOnce(t *testing.T) {
	t.Parallel()
	kv := &countingKV{KV: share(storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db")))}
	s := newStore(t, kv)
	must(t, s.SaveUsage(t.Context(), []store.UsageRow{
		usageRow("2026-11-01", "k", "m", 1), usageRow("2026-11-30", "k", "m", 1), usageRow("2026-11-30", "kk", "m", 1),
		usageRow("2026-12-01", "k", "m", 1), usageRow("2026-11-01T15", "k", "m", 1),
	}))
	kv.reads = 0
	rows := 0
	count := func(store.UsageRow) error {
		rows++
		return nil
	}
	must(t, s.EachUsage(t.Context(), account, "k", "2026-11-01", "2026-11-30", count))
	if rows != 2 || kv.reads != 1 {
		t.Errorf("%d rows with %d reads", rows, kv.reads)
	}
}
