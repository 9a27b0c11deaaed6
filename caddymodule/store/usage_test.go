package store_test

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func usageDay(day string, n int64) store.UsageDay {
	return store.UsageDay{Account: account, Day: day, Requests: n, Errors: 2 * n, InputTokens: 3 * n, OutputTokens: 4 * n}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	day := usageDay
	if err := s.SaveUsage(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := s.SaveUsage(t.Context(), []store.UsageDay{day("2026-11-21", 3), day("2026-11-20", 1), {Account: "nobody", Day: "2026-11-21"}, {Account: "a/b", Day: "2026-11-21"}}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s, path)
	if err := s.SaveUsage(t.Context(), []store.UsageDay{day("2026-11-21", 10), day("2026-12-01", 5)}); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string][]store.UsageDay{
		"2026-01-01": {day("2026-11-20", 1), day("2026-11-21", 10), day("2026-12-01", 5)},
		"2026-11-21": {day("2026-11-21", 10), day("2026-12-01", 5)},
		"2026-12-02": nil,
	} {
		if got, err := s.Usage(t.Context(), account, from, nil); err != nil || !slices.Equal(got, want) {
			t.Errorf("from %s: %+v, %v", from, got, err)
		}
	}
	for of, want := range map[string]store.UsageDay{"2026-11-21": day("2026-11-21", 10), "2026-11-22": day("2026-11-22", 0)} {
		if got, err := s.OwnUsage(t.Context(), account, of); err != nil || got != want {
			t.Errorf("own usage of %s: %+v, %v", of, got, err)
		}
	}
	if got, err := s.Usage(t.Context(), "other", "2026-01-01", nil); err != nil || got != nil {
		t.Errorf("usage of another account %+v, %v", got, err)
	}
	for _, wrong := range []string{"", "2026-1-1", "2026-02-30", "../x"} {
		_, err := s.Usage(t.Context(), account, wrong, nil)
		wantError(t, err, store.ErrInvalid, "not a day")
		_, err = s.OwnUsage(t.Context(), account, wrong)
		wantError(t, err, store.ErrInvalid, "not a day")
		wantError(t, s.SaveUsage(t.Context(), []store.UsageDay{day("2026-11-21", 100), day(wrong, 1)}), store.ErrInvalid)
	}
	_, err := s.Usage(t.Context(), "default/2026", "2026-01-01", nil)
	wantError(t, err, store.ErrNotFound)
}

// Two gateways share a store, and each has a local KV. The sum is exact at each of them: for
// its own requests at once, for those of the other within five minutes. A restart loses
// nothing, published or not.
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
			if err != nil {
				t.Fatal(err)
			}
			if edges[edge], err = store.New(share(kv), store.Options{Edge: edge, Local: local}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // until it has published what was left
		}
		save := func(edge, day string, n int64) {
			t.Helper()
			if err := edges[edge].SaveUsage(ctx, []store.UsageDay{usageDay(day, n)}); err != nil {
				t.Error(err)
			}
		}
		check := func(edge string, want ...store.UsageDay) {
			t.Helper()
			if got, err := edges[edge].Usage(ctx, account, "1990-01-01", nil); err != nil || !slices.Equal(got, want) {
				t.Errorf("at %s: %+v, %v, not %+v", edge, got, err, want)
			}
		}
		open("a")
		open("b")
		defer func() { _ = edges["b"].Close() }()
		if err := edges["a"].SaveRecent(ctx, account, []byte("x")); err != nil {
			t.Error(err)
		}
		save("a", today, 100)
		save("a", old, 7)
		save("b", today, 20)
		check("a", usageDay(old, 7), usageDay(today, 100))
		check("b", usageDay(today, 20))
		time.Sleep(5*time.Minute + time.Second)
		save("a", today, 103)
		check("a", usageDay(old, 7), usageDay(today, 123))
		check("b", usageDay(old, 7), usageDay(today, 120))
		if err := edges["a"].Close(); err != nil {
			t.Error(err)
		}
		check("b", usageDay(old, 7), usageDay(today, 123))
		open("a")
		defer func() { _ = edges["a"].Close() }()
		for day, want := range map[string]int64{today: 103, old: 7} { // one from each KV
			if got, err := edges["a"].OwnUsage(ctx, account, day); err != nil || got != usageDay(day, want) {
				t.Errorf("own usage of %s after a restart: %+v, %v", day, got, err)
			}
		}
		if got := paths(t, kv, store.DirRecent); len(got) != 0 {
			t.Errorf("the shared KV has %v", got)
		}
	})
}

func TestRecent(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	if got, err := s.LoadRecent(t.Context(), account); got != nil || err != nil {
		t.Errorf("there is %q, %v", got, err)
	}
	largest := bytes.Repeat([]byte{0xff}, 780_000)
	for _, data := range [][]byte{[]byte("one"), largest, {0, 1}} {
		if err := s.SaveRecent(t.Context(), account, data); err != nil {
			t.Fatal(err)
		}
		if got, err := s.LoadRecent(t.Context(), account); err != nil || !bytes.Equal(got, data) {
			t.Errorf("saved %d bytes, loaded %d, %v", len(data), len(got), err)
		}
	}
	if got, err := reopen(t, s, path).LoadRecent(t.Context(), account); err != nil || !bytes.Equal(got, []byte{0, 1}) {
		t.Errorf("after a restart %q, %v", got, err)
	}
	s = storetest.New(t)
	wantError(t, s.SaveRecent(t.Context(), account, make([]byte, store.MaxValue)), store.ErrInvalid, "more than")
	wantError(t, s.SaveRecent(t.Context(), "nobody", nil), store.ErrNotFound, "unknown account")
	_, err := s.LoadRecent(t.Context(), "a/b")
	wantError(t, err, store.ErrNotFound, "unknown account")
}
