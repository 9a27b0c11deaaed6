package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// put applies a transaction that must succeed.
func put(t *testing.T, kv store.KV, ops ...store.Op) int64 {
	t.Helper()
	result, err := kv.Txn(t.Context(), store.Txn{Then: ops})
	if err != nil || !result.Succeeded {
		t.Fatalf("txn: %+v, %v", result, err)
	}
	return result.Revision
}

// TestWatchLarge: a late watcher reads transactions that etcd sends in several fragments. Each is one batch.
func TestWatchLarge(t *testing.T) {
	t.Parallel()
	kv := open(t, start(t, 1)[0].url)
	value := make([]byte, store.MaxTxnBytes/2-10)
	first := put(t, kv, store.Put("a", nil))
	last := first
	for range 20 {
		last = put(t, kv, store.Put("a", value), store.Put("b", value))
	}
	for _, from := range []int64{first, last - 5} {
		w, err := kv.Watch(t.Context(), store.Span{}, from)
		must(t, err)
		defer w.Close()
		for reached := from - 1; reached < last; {
			batch, err := w.Next(t.Context())
			must(t, err)
			for _, e := range batch.Events {
				if rev := e.Item.ModRevision; rev <= reached || rev > batch.Revision {
					t.Errorf("a change of %d in the batch from %d to %d", rev, reached, batch.Revision)
				}
			}
			if end := batch.Events[len(batch.Events)-1].Item; end.ModRevision != first && end.Key != "b" {
				t.Errorf("a batch ends within transaction %d", end.ModRevision)
			}
			reached = batch.Revision
		}
	}
}

// TestWatchCompacted: a compaction removes changes that a watcher has not read, and a revision that Each is
// reading.
func TestWatchCompacted(t *testing.T) {
	t.Parallel()
	all := start(t, 1)
	kv, admin := open(t, all[0].url), all.client(t)
	first := put(t, kv, store.Put("a", nil))
	for i := range 201 { // more than a page
		var ops []store.Op
		for j := range 100 {
			ops = append(ops, store.Put(fmt.Sprintf("many/%d-%d", i, j), nil))
		}
		put(t, kv, ops...)
	}
	compact := func() {
		t.Helper()
		if _, err := admin.Compact(t.Context(), put(t, kv, store.Put("a", nil))); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	_, err := kv.Each(t.Context(), store.Prefix("many/"), func(store.Item) error {
		if n++; n == 1 {
			compact()
		}
		return nil
	})
	if !errors.Is(err, store.ErrCompacted) || !strings.Contains(err.Error(), "longer than etcd keeps old revisions") {
		t.Errorf("each after %d items: %v", n, err)
	}
	w, err := kv.Watch(t.Context(), store.Span{}, first)
	must(t, err)
	for range 2 {
		if _, err := w.Next(t.Context()); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("next: %v", err)
		}
	}
	if _, err := w.Progress(t.Context()); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("progress: %v", err)
	}
}

// TestWatchSilent: one of two paths to etcd becomes silent. The watcher changes to the other one when it
// requests the progress.
func TestWatchSilent(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	s := start(t, 1)[0]
	proxies := []*proxy{newProxy(t, s), newProxy(t, s)}
	direct, kv := open(t, s.url), open(t, proxies[0].url, proxies[1].url)
	w, err := kv.Watch(t.Context(), store.Span{}, 0)
	must(t, err)
	for i, p := range proxies {
		p.swallow.Store(true)
		put(t, direct, store.Put("a", []byte(strconv.Itoa(i))))
		begin := time.Now()
		if _, err := w.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		for {
			batch, err := w.Next(ctx)
			must(t, err)
			if len(batch.Events) > 0 {
				if got := string(batch.Events[0].Item.Value); got != strconv.Itoa(i) || len(batch.Events) > 1 {
					t.Errorf("change %d is %q", i, got)
				}
				break
			}
		}
		cancel()
		t.Logf("%v after proxy %d became silent", time.Since(begin).Round(time.Millisecond), i)
		p.swallow.Store(false)
		p.cut()
	}
}

// TestEachLarge reads values of the maximum size. A page of them exceeds the client's limit.
func TestEachLarge(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	kv := open(t, start(t, 1)[0].url)
	const large = 80
	for i := range large {
		put(t, kv, store.Put(fmt.Sprintf("large/%03d", i), make([]byte, store.MaxValue)))
	}
	n := 0
	_, err := kv.Each(t.Context(), store.Span{}, func(item store.Item) error {
		if want := fmt.Sprintf("large/%03d", n); item.Key != want || len(item.Value) != store.MaxValue {
			t.Errorf("item %q with %d bytes instead of %q", item.Key, len(item.Value), want)
		}
		n++
		return nil
	})
	if err != nil || n != large {
		t.Errorf("%d items, %v", n, err)
	}
}
