package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// writers write until they are stopped. Each has a key of its own, which it compares with
// what it knows without reading it, and all count the same sum.
type writers struct {
	t       *testing.T
	kv      store.KV
	stop    chan struct{}
	wg      sync.WaitGroup
	added   atomic.Int64 // to the sum
	counts  []int        // of each writer, when it has stopped
}

func startWriters(t *testing.T, kv store.KV, n int) *writers {
	w := &writers{t: t, kv: kv, stop: make(chan struct{}), counts: make([]int, n)}
	for i := range n {
		w.wg.Go(func() { w.write(i) })
	}
	return w
}

func (w *writers) write(i int) {
	key, revision := "w/"+strconv.Itoa(i), int64(0)
	for n := 1; ; n++ {
		select {
		case <-w.stop:
			return
		default:
		}
		sum, err := w.kv.Get(w.t.Context(), "sum")
		if err != nil {
			w.t.Error(err)
			return
		}
		value, _ := strconv.Atoi(string(sum.Value)) // "" is 0
		own := store.Compare{Key: key, ModRevision: revision}
		put := store.Put(key, strconv.AppendInt(nil, int64(n), 10))
		result, err := w.kv.Txn(w.t.Context(), store.Txn{
			If:   []store.Compare{own, {Key: "sum", ModRevision: sum.ModRevision}},
			Then: []store.Op{put, store.Put("sum", strconv.AppendInt(nil, int64(value+1), 10))},
		})
		added := err == nil && result.Succeeded
		if err == nil && !added { // another writer was faster
			result, err = w.kv.Txn(w.t.Context(), store.Txn{If: []store.Compare{own}, Then: []store.Op{put}})
		}
		if err != nil || !result.Succeeded {
			w.t.Errorf("write %d of writer %d: %+v, %v", n, i, result, err)
			return
		}
		if added {
			w.added.Add(1)
		}
		revision, w.counts[i] = result.Revision, n
	}
}

// end stops the writers and checks what they have written.
func (w *writers) end(kv store.KV) {
	close(w.stop)
	w.wg.Wait()
	for i, n := range w.counts {
		if item, err := kv.Get(w.t.Context(), "w/"+strconv.Itoa(i)); err != nil || string(item.Value) != strconv.Itoa(n) {
			w.t.Errorf("writer %d has written %d, the store has %s, %v", i, n, item.Value, err)
		}
	}
	if sum, err := kv.Get(w.t.Context(), "sum"); err != nil || string(sum.Value) != strconv.Itoa(int(w.added.Load())) {
		w.t.Errorf("the sum is %s after %d additions, %v", sum.Value, w.added.Load(), err)
	}
}

// checkWatch reads all changes from the beginning to the end of the writers: none may be
// missing, and none may come twice.
func (w *writers) checkWatch(watcher store.Watcher, end int64) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	seen, sum, reached, events := make([]int, len(w.counts)), 0, int64(0), 0
	for reached < end {
		batch, err := watcher.Next(ctx)
		if err != nil {
			w.t.Fatalf("next, after %d of %d: %v", reached, end, err)
		}
		for _, e := range batch.Events {
			if e.Item.ModRevision <= reached || e.Item.ModRevision > batch.Revision {
				w.t.Fatalf("a change of %d in the batch from %d to %d", e.Item.ModRevision, reached, batch.Revision)
			}
			of, i := &sum, 0
			if _, err := fmt.Sscanf(e.Item.Key, "w/%d", &i); err == nil {
				of = &seen[i]
			}
			if *of++; string(e.Item.Value) != strconv.Itoa(*of) {
				w.t.Fatalf("change %d of %s is to %s", *of, e.Item.Key, e.Item.Value)
			}
			events++
		}
		reached = batch.Revision
	}
	for i, n := range w.counts {
		if seen[i] != n {
			w.t.Errorf("watched %d writes of %d", seen[i], n)
		}
	}
	w.t.Logf("%d changes", events)
}

// TestWritesThroughTrouble breaks the connections to all members.
func TestWritesThroughTrouble(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	all := start(t, 3)
	var urls []string
	for _, s := range all {
		p := newProxy(t, s)
		p.trouble(t)
		urls = append(urls, p.url)
	}
	kv, other := open(t, urls...), open(t, urls...)
	watcher, err := other.Watch(t.Context(), store.Span{End: "x/"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := startWriters(t, kv, 4)
	time.Sleep(15 * time.Second)
	w.end(other)
	end, err := watcher.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.checkWatch(watcher, end)
}

// TestAllMembersDown ends all members while a write and a watcher wait.
func TestAllMembersDown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	all := start(t, 3)
	var ways []*proxy
	var urls []string
	for _, s := range all {
		p := newProxy(t, s)
		ways, urls = append(ways, p), append(urls, p.url)
	}
	kv := open(t, urls...)
	watcher, err := kv.Watch(t.Context(), store.Span{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		s.Kill()
	}
	for name, call := range map[string]func(context.Context) error{
		"get": func(ctx context.Context) error { _, err := kv.Get(ctx, "a"); return err },
		"txn": func(ctx context.Context) error {
			_, err := kv.Txn(ctx, store.Txn{Then: []store.Op{store.Put("a", nil)}})
			return err
		},
		"lease": func(ctx context.Context) error { _, err := kv.(store.Leaser).Lease(ctx, time.Minute); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := call(ctx)
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			strings.Contains(err.Error(), "the change may have been made") != (name == "txn") {
			t.Errorf("%s without a member: %v", name, err)
		}
		cancel()
	}
	written := make(chan int64)
	go func() {
		result, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("b", nil)}})
		if err != nil || !result.Succeeded {
			t.Errorf("a write that waits: %+v, %v", result, err)
		}
		written <- result.Revision
	}()
	// So many attempts that gRPC would need many minutes for them with the pauses that it
	// makes unless told otherwise.
	const enough = 20
	for _, p := range ways {
		poll(t, "an attempt to connect", func(context.Context) error {
			if n := p.dialed.Load(); n < enough {
				return fmt.Errorf("%d attempts, not yet %d", n, enough)
			}
			return nil
		})
	}
	for _, s := range all {
		s.start(t)
	}
	all.wait(t)
	revision := <-written
	for reached := int64(0); reached < revision; {
		batch, err := watcher.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		reached = batch.Revision
	}
}
