package activity_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// Each request through another gateway counts once and immediately, whether or not that gateway has saved
// or published it, before or after its report.
func TestReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		shared := storetest.OpenBolt(t, filepath.Join(dir, "shared.db"))
		edge := func(name string) (*activity.Log, func()) {
			st, err := store.New(storetest.Share(shared),
				store.Options{Edge: name, Local: storetest.OpenBolt(t, filepath.Join(dir, name))})
			if err != nil {
				t.Fatal(err)
			}
			l := activity.New(activity.Options{Store: st})
			return l, func() { closeBoth(t, l, st) }
		}
		here, closeHere := edge("here")
		defer closeHere()
		there, closeThere := edge("there")
		defer closeThere()
		report := func() (r activity.Report) {
			t.Helper()
			made, err := there.Report(ctx, account)
			if err != nil {
				t.Error(err)
			}
			text, err := json.Marshal(made)
			if err != nil || json.Unmarshal(text, &r) != nil {
				t.Errorf("%s, %v", text, err)
			}
			return r
		}
		check := func(when string, r activity.Report, want int64) {
			t.Helper()
			var sum store.Usage
			err := here.EachUsage(ctx, account, "1990-01-01", "2099-12-31", map[string][]store.UsageRow{"there": r.Usage},
				func(r store.UsageRow) error {
					sum.Add(r.Usage)
					return nil
				})
			if err != nil || sum.Requests != want || sum.InputTokens != 100*want {
				t.Errorf("%s: %+v, not %d requests, %v", when, sum, want, err)
			}
		}
		here.Record(account, request(1))
		requests := int64(1)
		var old activity.Report
		for range 100 { // the steps of saving and publishing fall between different requests
			there.Record(account, request(2))
			requests++
			now := report()
			check(time.Now().String(), now, requests)
			time.Sleep(4700 * time.Millisecond)
			synctest.Wait()
			check(time.Now().String()+", with the report from before", now, requests)
			if old.Usage == nil {
				old = now
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		check("published", activity.Report{}, requests)
		check("published, with an old report", old, requests)
		if r := report(); len(r.Usage) != 0 {
			t.Errorf("%d rows are reported that are published", len(r.Usage))
		}
	})
}

// silentKV is a shared KV that can stop answering.
type silentKV struct {
	store.KV
	silent atomic.Bool
}

func (kv *silentKV) Get(ctx context.Context, key string) (store.Item, error) {
	if kv.silent.Load() {
		<-ctx.Done()
		return store.Item{}, ctx.Err()
	}
	return kv.KV.Get(ctx, key)
}

// Without the shared KV, a report comes in time. Only the rows are missing whose sums the gateway does
// not have.
func TestReportWithoutStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		shared := &silentKV{KV: storetest.Share(storetest.OpenBolt(t, filepath.Join(dir, "shared.db")))}
		st, err := store.New(shared, store.Options{Edge: "a", Local: storetest.OpenBolt(t, filepath.Join(dir, "a"))})
		if err != nil {
			t.Fatal(err)
		}
		l := activity.New(activity.Options{Store: st})
		defer closeBoth(t, l, st)
		record := func(key string) {
			r := request(1)
			r.KeyID = key
			l.Record(account, r)
		}
		check := func(requests int, want map[string]int64) {
			t.Helper()
			began := time.Now()
			r, err := l.Report(context.Background(), account)
			if took := time.Since(began); err != nil || took > time.Second/2 {
				t.Errorf("after %s, %v", took, err)
			}
			got := map[string]int64{}
			for _, row := range r.Usage {
				got[row.Key] = row.Requests
			}
			if !maps.Equal(got, want) {
				t.Errorf("rows: %v, not %v", got, want)
			}
		}
		record("known")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		shared.silent.Store(true)
		for _, key := range []string{"known", "new", "newer"} {
			record(key)
		}
		check(4, map[string]int64{"known": 2})
		shared.silent.Store(false)
		check(4, map[string]int64{"known": 2, "new": 1, "newer": 1})
	})
}

// lostKV is a shared KV that can become unreachable.
type lostKV struct {
	store.KV
	lost atomic.Bool
}

func (kv *lostKV) Get(ctx context.Context, key string) (store.Item, error) {
	if kv.lost.Load() {
		return store.Item{}, store.ErrUnavailable
	}
	return kv.KV.Get(ctx, key)
}

// A log that is closed without the shared KV saves all rows whose sums the gateway's own file has.
func TestCloseWithoutStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shared := &lostKV{KV: storetest.Share(storetest.OpenBolt(t, filepath.Join(dir, "shared.db")))}
	st, err := store.New(shared, store.Options{Edge: "a", Local: storetest.OpenBolt(t, filepath.Join(dir, "a"))})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	record := func(l *activity.Log, kind string) {
		for i := range 20 {
			r := request(i)
			r.KeyID = fmt.Sprint(kind, i)
			l.Record(account, r)
		}
	}
	l := activity.New(activity.Options{Store: st})
	record(l, "known")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = activity.New(activity.Options{Store: st})
	record(l, "known")
	record(l, "new")
	shared.lost.Store(true)
	if err := l.Close(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("closing without the shared KV: %v", err)
	}
	rows, err := st.UnpublishedUsage(t.Context(), account, 1000)
	if err != nil || len(rows) == 0 {
		t.Fatal(rows, err)
	}
	for _, r := range rows {
		if r.Requests != 2 {
			t.Errorf("the row of %s has %d requests", r.Key, r.Requests)
		}
	}
}
