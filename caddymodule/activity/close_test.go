package activity_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

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
	st, err := store.New(shared, store.Options{Edge: "a", Own: storetest.OpenBolt(t, filepath.Join(dir, "a"))})
	must(t, err)
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
	must(t, l.Close())
	l = activity.New(activity.Options{Store: st})
	shared.lost.Store(true) // before the first save, which may be late
	record(l, "known")
	record(l, "new")
	if err := l.Close(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("closing without the shared KV: %v", err)
	}
	rows := 0
	err = st.EachUsage(t.Context(), account, "", "1990-01-01", "2099-12-31", func(r store.UsageRow) error {
		if rows++; r.Requests != 2 {
			t.Errorf("the row of %s has %d requests", r.Key, r.Requests)
		}
		return nil
	})
	if err != nil || rows == 0 {
		t.Error(rows, err)
	}
}
