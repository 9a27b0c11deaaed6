package store_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	day := func(day string, n int64) store.UsageDay {
		return store.UsageDay{Account: account, Day: day, Requests: n, Errors: 2 * n, InputTokens: 3 * n, OutputTokens: 4 * n}
	}
	if err := s.AddUsage(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := s.AddUsage(t.Context(), []store.UsageDay{day("2026-11-21", 3), day("2026-11-20", 1), {Account: "nobody", Day: "2026-11-21"}, {Account: "a/b", Day: "2026-11-21"}}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s, path)
	if err := s.AddUsage(t.Context(), []store.UsageDay{day("2026-11-21", 10), day("2026-12-01", 5)}); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string][]store.UsageDay{
		"2026-01-01": {day("2026-11-20", 1), day("2026-11-21", 13), day("2026-12-01", 5)},
		"2026-11-21": {day("2026-11-21", 13), day("2026-12-01", 5)},
		"2026-12-02": nil,
	} {
		if got, err := s.Usage(t.Context(), account, from); err != nil || !slices.Equal(got, want) {
			t.Errorf("from %s: %+v, %v", from, got, err)
		}
	}
	if got, err := s.Usage(t.Context(), "other", "2026-01-01"); err != nil || got != nil {
		t.Errorf("usage of another account %+v, %v", got, err)
	}
	for _, wrong := range []string{"", "2026-1-1", "2026-02-30", "../x"} {
		_, err := s.Usage(t.Context(), account, wrong)
		wantError(t, err, store.ErrInvalid, "not a day")
		wantError(t, s.AddUsage(t.Context(), []store.UsageDay{day("2026-11-21", 100), day(wrong, 1)}), store.ErrInvalid)
	}
	_, err := s.Usage(t.Context(), "default/2026", "2026-01-01")
	wantError(t, err, store.ErrNotFound)
}

// More days than fit into a transaction, added from two processes at once.
func TestAddUsageConcurrent(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	var days []store.UsageDay
	for i := range 150 {
		days = append(days, store.UsageDay{Account: account, Day: fmt.Sprintf("2026-%02d-%02d", i/28+1, i%28+1), Requests: 1})
	}
	var wg sync.WaitGroup
	for range 2 {
		s := newStore(t, share(kv))
		wg.Go(func() {
			for range 5 {
				if err := s.AddUsage(t.Context(), days); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := newStore(t, share(kv)).Usage(t.Context(), account, "2026-01-01")
	if err != nil || len(got) != len(days) {
		t.Fatalf("%d days, %v", len(got), err)
	}
	for _, d := range got {
		if d.Requests != 10 {
			t.Errorf("%+v", d)
		}
	}
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
