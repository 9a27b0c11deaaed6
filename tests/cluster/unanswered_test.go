package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestTxnUnanswered: the first attempt of a transaction or its answer is lost. Before the second attempt,
// another client may write. The transaction requires that a and b have not changed since they were put, and
// that c does not exist.
func TestTxnUnanswered(t *testing.T) {
	t.Parallel()
	s := start(t, 1)[0]
	p := newProxy(t, s)
	direct, kv := open(t, s.url), open(t, p.url)
	lease, err := kv.(store.Leaser).Lease(t.Context(), patience)
	must(t, err)
	leased := store.Op{Key: "a", Lease: lease.ID()}
	put1 := func(key string) store.Op { return store.Put(key, []byte("1")) }
	put2 := func(key string) store.Op { return store.Put(key, []byte("2")) }
	mark := func(key string) store.Op { return store.Op{Key: key, Value: []byte("mark"), Mark: true} }
	const unclear = "others have changed the same records since; the change may have been made: look"
	type ops []store.Op
	for name, test := range map[string]struct {
		txn       ops
		arrives   bool // the first attempt reaches the server
		meanwhile ops  // writes of the other client
		want      string
	}{
		"put":                            {ops{put1("a"), mark("m")}, true, nil, "made"},
		"create":                         {ops{put1("c"), mark("m")}, true, nil, "made"},
		"put with a lease":               {ops{leased}, true, nil, "made"},
		"put after a mark by others":     {ops{mark("b"), put1("a")}, true, ops{mark("b")}, "made before"},
		"put, lost":                      {ops{put1("a")}, false, nil, "made"},
		"put, lost; another record":      {ops{put1("a")}, false, ops{put1("b")}, "conflict"},
		"put, lost; a mark by others":    {ops{mark("b"), put1("a")}, false, ops{mark("b")}, "conflict"},
		"create, lost; another record":   {ops{put1("c")}, false, ops{put1("a")}, "conflict"},
		"put; overwritten":               {ops{put1("a")}, true, ops{put2("a")}, "made before"},
		"create, lost; by others":        {ops{put1("c")}, false, ops{put2("c")}, "conflict"},
		"create; deleted":                {ops{put1("c")}, true, ops{store.Delete("c")}, "made before"},
		"create, lost":                   {ops{put1("c"), mark("m")}, false, nil, "made"},
		"put with a lease, lost; others": {ops{leased}, false, ops{put2("a")}, "conflict"},
		"only a mark, lost; by others":   {ops{mark("a")}, false, ops{mark("a")}, "unknown"},
		"nothing compared, lost":         {ops{put1("d")}, false, ops{put1("a")}, "conflict"},
		"delete":                         {ops{store.Delete("a"), store.Delete("c"), mark("m")}, true, nil, "made"},
		"delete, lost; by others":        {ops{store.Delete("a"), mark("m")}, false, ops{store.Delete("a")}, "made"},
		"deletions, lost; one by others": {
			ops{store.Delete("a"), store.Delete("b")},
			false,
			ops{store.Delete("a")},
			"made",
		},
		"delete; created by others":       {ops{store.Delete("a"), mark("m")}, true, ops{put1("a")}, "unknown"},
		"delete, lost; changed by others": {ops{store.Delete("a"), mark("m")}, false, ops{put1("a")}, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, direct, store.Delete("c"), store.Delete("d"))
			before := put(t, direct, store.Put("a", nil), store.Put("b", nil))
			if _, err := kv.Get(t.Context(), "c"); err != nil { // as callers do before a transaction
				t.Fatal(err)
			}
			losing := &p.lose
			if test.arrives {
				losing = &p.answers
			}
			losing.Store(true)
			compares := []store.Compare{{Key: "a", ModRevision: before}, {Key: "b", ModRevision: before}, {Key: "c"}}
			var result store.TxnResult
			done := make(chan error)
			go func() {
				var err error
				result, err = kv.Txn(t.Context(), store.Txn{If: compares, Then: test.txn})
				done <- err
			}()
			wait.Until(t, "the first attempt", func() bool {
				if !test.arrives {
					return p.hasLost("postern/a")
				}
				snap, err := store.Range(t.Context(), direct, store.Span{})
				return err == nil && snap.Revision > before
			})
			between := before
			if test.meanwhile != nil {
				between = put(t, direct, test.meanwhile...)
			}
			losing.Store(false)
			p.cut()
			err := <-done
			p.forget()
			got := "unknown"
			switch {
			case err == nil && result.Succeeded && result.Revision < between:
				got = "made before"
			case err == nil && result.Succeeded:
				got = "made"
				checkMade(t, direct, test.txn, result, between)
			case err == nil:
				got = "conflict"
			case !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), unclear):
				t.Error(err)
			}
			if got != test.want {
				t.Errorf("%s, want %s: %+v, %v", got, test.want, result, err)
			}
		})
	}
}

// checkMade checks that the records that a transaction puts have the revision that it has returned, and that
// its deletions were made before.
func checkMade(t *testing.T, kv store.KV, ops []store.Op, result store.TxnResult, between int64) {
	t.Helper()
	for _, op := range ops {
		item, err := kv.Get(t.Context(), op.Key)
		switch {
		case err != nil:
			t.Error(err)
		case op.Delete && (item.Exists() || result.Revision <= between):
			t.Errorf("after %d, %s is %+v: %+v", between, op.Key, item, result)
		case !op.Delete && string(item.Value) != string(op.Value),
			!op.Delete && !op.Mark && item.ModRevision != result.Revision:
			t.Errorf("%+v: %+v", item, result)
		}
	}
	if !result.Changed {
		t.Error("nothing was changed")
	}
}

// delayFirst starts a transaction and returns a channel for its result. The first attempt does not arrive until the
// proxy delivers it. Later attempts arrive at once.
func delayFirst(t *testing.T, p *proxy, kv store.KV, txn store.Txn) <-chan store.TxnResult {
	t.Helper()
	p.lose.Store(true)
	done := make(chan store.TxnResult, 1)
	go func() {
		result, err := kv.Txn(t.Context(), txn)
		if err != nil {
			t.Error(err)
		}
		done <- result
	}()
	// The key is in the compares. The value is in the changes after them.
	wait.Until(t, "the first attempt", func() bool { return p.hasLost(string(txn.Then[0].Value)) })
	p.lose.Store(false)
	p.cut()
	return done
}

// TestTxnLate: several clients send transactions, and get no answer to the first attempt. That arrives after
// the records were deleted again, when all compares hold.
func TestTxnLate(t *testing.T) {
	t.Parallel()
	s := start(t, 1)[0]
	direct, late := open(t, s.url), map[string]*proxy{}
	w, err := direct.Watch(t.Context(), store.Span{}, 0)
	must(t, err)
	defer w.Close()
	made := make(map[string]<-chan store.TxnResult)
	for _, key := range []string{"a", "b", "leased", "uncompared"} {
		late[key] = newProxy(t, s)
		kv := open(t, late[key].url)
		op, compares := store.Put(key, []byte("late "+key)), []store.Compare{{Key: key}}
		switch key {
		case "leased":
			lease, err := kv.(store.Leaser).Lease(t.Context(), patience)
			must(t, err)
			op.Lease = lease.ID()
		case "uncompared":
			compares = nil
		}
		made[key] = delayFirst(t, late[key], kv, store.Txn{If: compares, Then: []store.Op{op}})
	}
	all := store.Txn{If: []store.Compare{{Key: "x"}}, Then: []store.Op{store.Put("x", nil)}}
	want := make(map[string]int64)
	for key, done := range made {
		result := <-done
		if want[key] = result.Revision; !result.Succeeded || !result.Changed {
			t.Errorf("%s: %+v", key, result)
		}
		all.If = append(all.If, store.Compare{Key: key, ModRevision: result.Revision})
		all.Then = append(all.Then, store.Delete(key))
	}
	deleted, err := direct.Txn(t.Context(), all) // with an old epoch
	if want["x"] = deleted.Revision; err != nil || !deleted.Succeeded {
		t.Fatalf("deleting %v: %+v, %v", want, deleted, err)
	}
	for key, p := range late {
		p.deliver(t)
		wait.Until(t, "the answer to an attempt that is late", func() bool {
			item, err := direct.Get(t.Context(), key)
			return err != nil || item.Exists() || p.answered("postern/meta/schema")
		})
	}
	for last := put(t, direct, store.Delete("a"), store.Put("y", nil)); ; {
		batch, err := w.Next(t.Context())
		must(t, err)
		for _, e := range batch.Events {
			if key, revision := e.Item.Key, e.Item.ModRevision; !e.Deleted && key != "y" && revision != want[key] {
				t.Errorf("%s was put at revision %d, want once, at %d", key, revision, want[key])
			}
		}
		if batch.Revision >= last {
			return
		}
	}
}

// TestTxnStale: the first attempt of a transaction with an old compare is lost. Another client has put the
// same bytes earlier, which does not show that the transaction was made.
func TestTxnStale(t *testing.T) {
	t.Parallel()
	s := start(t, 1)[0]
	p := newProxy(t, s)
	kv := open(t, p.url)
	old := put(t, kv, store.Put("a", nil))
	put(t, kv, store.Put("a", []byte("same")))
	result := <-delayFirst(t, p, kv, store.Txn{
		If:   []store.Compare{{Key: "a", ModRevision: old}},
		Then: []store.Op{store.Put("a", []byte("same")), store.Put("b", nil)},
	})
	if item, err := kv.Get(t.Context(), "b"); err != nil || result.Succeeded || item.Exists() {
		t.Errorf("%+v, %+v, %v", result, item, err)
	}
}

// TestRestored connects the client to an etcd with a lower revision, as after a restore. The client has missed
// changes, even if the revision later exceeds the old one.
func TestRestored(t *testing.T) {
	t.Parallel()
	p := newProxy(t, start(t, 1)[0])
	kv := open(t, p.url)
	w, err := kv.Watch(t.Context(), store.Span{}, 0)
	must(t, err)
	defer w.Close()
	var before int64
	for range 9 {
		before = put(t, kv, store.Put("a", nil))
	}
	older := start(t, 1)[0]
	p.leadTo(older)
	for _, later := range []bool{false, true} {
		for direct := open(t, older.url); later; {
			if put(t, direct, store.Put("a", nil)) > before {
				break
			}
		}
		_, failed := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("a", nil)}})
		for name, err := range map[string]error{"txn": failed, "progress": second(w.Progress(t.Context()))} {
			const remedy = "it was restored, so restart this gateway"
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), remedy) {
				t.Errorf("%s, later: %v: %v", name, later, err)
			}
		}
	}
}
