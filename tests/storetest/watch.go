package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

func testWatch(k *kvTest) {
	first := k.put("a", "1")
	second := k.put("b", "2")
	w := k.watch(store.Span{}, first)
	third := k.txn(store.Delete("a"), store.Put("c", []byte("3")))
	equal(k, "events", k.next(w, 4), []string{
		fmt.Sprintf("%d a=1", first), fmt.Sprintf("%d b=2", second),
		fmt.Sprintf("%d -a", third), fmt.Sprintf("%d c=3", third),
	})
	k.silent(w)

	later := k.watch(store.Span{}, third+1)
	fourth := k.put("d", "4")
	equal(k, "events of a future revision", k.next(later, 1), []string{fmt.Sprintf("%d d=4", fourth)})
}

func testWatchSpan(k *kvTest) {
	w := k.watch(store.Prefix("b/"), 0)
	k.put("a", "1")
	rev := k.txn(store.Put("a", nil), store.Put("b/1", []byte("x")), store.Put("b/2", []byte("y")), store.Put("c", nil))
	deleted := k.txn(store.Delete("b/1"), store.Delete("a"))
	equal(k, "events", k.next(w, 3), []string{
		fmt.Sprintf("%d b/1=x", rev), fmt.Sprintf("%d b/2=y", rev), fmt.Sprintf("%d -b/1", deleted),
	})
	k.silent(w)
}

func testWatchNext(k *kvTest) {
	k.put("a", "1")
	w := k.watch(store.Span{}, 0)
	k.silent(w)
	rev := k.put("a", "2")
	equal(k, "events", k.next(w, 1), []string{fmt.Sprintf("%d a=2", rev)})
}

func testWatchEnds(k *kvTest) {
	w := k.watch(store.Span{}, 0)
	ctx, cancel := context.WithCancel(k.Context())
	waiting := make(chan error)
	go func() {
		_, err := w.Next(ctx)
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		k.Errorf("next with a context that ends: %v", err)
	}
	// That has ended the call of Next, not the watcher.
	rev := k.put("a", "1")
	equal(k, "events", k.next(w, 1), []string{fmt.Sprintf("%d a=1", rev)})
	go func() {
		_, err := w.Next(k.Context())
		waiting <- err
	}()
	w.Close()
	w.Close()
	if err := <-waiting; !errors.Is(err, store.ErrClosed) {
		k.Errorf("next of a closed watcher: %v", err)
	}
}

// testWatchGapless reads the state and watches from its revision on while others write. The
// result is always the whole state.
func testWatchGapless(k *kvTest) {
	const writes = 60
	writing := make(chan error, 1)
	go func() {
		for i := range writes {
			key := "k" + strconv.Itoa(i%7)
			op := store.Put(key, []byte(strconv.Itoa(i)))
			if i%5 == 4 {
				op = store.Delete(key)
			}
			if _, err := k.kv.Txn(k.Context(), store.Txn{Then: []store.Op{op}}); err != nil {
				writing <- err
				return
			}
		}
		_, err := k.kv.Txn(k.Context(), store.Txn{Then: []store.Op{store.Put("end", nil)}})
		writing <- err
	}()
	for range 5 {
		time.Sleep(time.Millisecond)
		snap := k.snapshot(store.Span{})
		state := map[string]string{}
		for _, i := range snap.Items {
			state[i.Key] = string(i.Value)
		}
		k.followToEnd(snap.Revision, state)
		final := k.snapshot(store.Span{})
		if len(final.Items) != len(state) {
			k.Fatalf("followed to %v, the state is %v", state, final.Items)
		}
		for _, i := range final.Items {
			if state[i.Key] != string(i.Value) {
				k.Errorf("%s is %q, followed to %q", i.Key, i.Value, state[i.Key])
			}
		}
	}
	if err := <-writing; err != nil {
		k.Error(err)
	}
}

func (k *kvTest) followToEnd(revision int64, state map[string]string) {
	w := k.watch(store.Span{}, revision+1)
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	defer cancel()
	for last := revision; ; {
		if _, ok := state["end"]; ok {
			return
		}
		batch, err := w.Next(ctx)
		if err != nil {
			k.Fatalf("following from %d: %v", revision, err)
		}
		for _, e := range batch.Events {
			if e.Item.ModRevision < last || e.Item.ModRevision <= revision {
				k.Fatalf("event of %d after %d", e.Item.ModRevision, last)
			}
			last = e.Item.ModRevision
			state[e.Item.Key] = string(e.Item.Value)
			if e.Deleted {
				delete(state, e.Item.Key)
			}
		}
	}
}

// testWatchCompacted watches from before a restart. If the KV no longer has these changes, it must
// fail, and not skip to later ones.
func testWatchCompacted(k *kvTest) {
	rev := k.put("a", "1")
	k.kv = k.Reopen(k.T, k.kv)
	w, err := k.kv.Watch(k.Context(), store.Span{}, rev)
	if err == nil {
		k.Cleanup(w.Close)
		k.put("b", "2")
		var batch store.Batch
		if batch, err = w.Next(k.Context()); err == nil && len(batch.Events) > 0 &&
			eventString(batch.Events[0]) != fmt.Sprintf("%d a=1", rev) {
			k.Errorf("the first event is %s", eventString(batch.Events[0]))
		}
	}
	if err != nil && !errors.Is(err, store.ErrCompacted) {
		k.Errorf("watching from before the restart: %v", err)
	}
	next := k.watch(store.Span{}, k.snapshot(store.Span{}).Revision+1)
	rev = k.put("c", "3")
	equal(k, "events", k.next(next, 1), []string{fmt.Sprintf("%d c=3", rev)})
}

// testWatchProgress waits for revisions whose changes are outside the watcher's span.
func testWatchProgress(k *kvTest) {
	w := k.watch(store.Prefix("b/"), 0)
	k.put("b/1", "1")
	for range 3 {
		changed := k.put("a", "1")
		revision, err := w.Progress(k.Context())
		if err != nil || revision < changed {
			k.Fatalf("progress after %d: %d, %v", changed, revision, err)
		}
		ctx, cancel := context.WithTimeout(k.Context(), patience)
		for reached := int64(0); reached < revision; {
			batch, err := w.Next(ctx)
			if err != nil {
				k.Fatalf("next, after %d of %d: %v", reached, revision, err)
			}
			if batch.Revision < reached {
				k.Errorf("a batch up to %d after one up to %d", batch.Revision, reached)
			}
			reached = batch.Revision
		}
		cancel()
	}
}

// testWatchBehind watches from 1,500 changes ago. The KV may have dropped them. If not, the
// revision of a batch must not be higher than those of later events.
func testWatchBehind(k *kvTest) {
	const changes = 1500
	first := k.put("a", "")
	last := first
	for range changes {
		last = k.put("a", "")
	}
	w, err := k.kv.Watch(k.Context(), store.Span{}, first)
	if errors.Is(err, store.ErrCompacted) {
		return
	}
	if err != nil {
		k.Fatal(err)
	}
	defer w.Close()
	events, reached := 0, int64(0)
	for reached < last {
		batch, err := w.Next(k.Context())
		if errors.Is(err, store.ErrCompacted) {
			return
		}
		if err != nil {
			k.Fatal(err)
		}
		for _, e := range batch.Events {
			if e.Item.ModRevision <= reached {
				k.Fatalf("event of %d after a batch up to %d", e.Item.ModRevision, reached)
			}
		}
		events, reached = events+len(batch.Events), batch.Revision
	}
	if events != changes+1 {
		k.Errorf("%d events of %d", events, changes+1)
	}
}
