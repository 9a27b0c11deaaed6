package storetest

import (
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/postern-dev/postern/caddymodule/store"
)

func testTxnAtomic(k *kvTest) {
	k.put("old", "1")
	rev := k.txn(store.Put("a", []byte("1")), store.Put("b", []byte("1")), store.Delete("old"))
	if a, b := k.get("a"), k.get("b"); a.ModRevision != rev || b.ModRevision != rev || k.get("old").Exists() {
		k.Errorf("after transaction %d: %+v, %+v", rev, a, b)
	}
	// The second operation cannot be done.
	_, err := k.kv.Txn(k.Context(), store.Txn{Then: []store.Op{
		store.Put("c", nil), {Key: "d", Lease: 4711}, store.Delete("a"),
	}})
	if !errors.Is(err, store.ErrNotFound) {
		k.Errorf("put with an unknown lease: %v", err)
	}
	if k.get("c").Exists() || k.get("d").Exists() || k.get("a").ModRevision != rev {
		k.Error("a transaction that failed changed something")
	}
}

func testTxnCompares(k *kvTest) {
	create := store.Txn{If: []store.Compare{{Key: "a"}}, Then: []store.Op{store.Put("a", []byte("1"))}}
	first, err := k.kv.Txn(k.Context(), create)
	if err != nil || !first.Succeeded {
		k.Fatalf("creating: %+v, %v", first, err)
	}
	for name, compares := range map[string][]store.Compare{
		"exists":          {{Key: "a"}},
		"old revision":    {{Key: "a", ModRevision: first.Revision - 1}},
		"future revision": {{Key: "a", ModRevision: first.Revision + 1}},
		"missing":         {{Key: "b", ModRevision: first.Revision}},
		"one of two":      {{Key: "a", ModRevision: first.Revision}, {Key: "a"}},
	} {
		got, err := k.kv.Txn(k.Context(), store.Txn{If: compares, Then: []store.Op{store.Delete("a"), store.Put("c", nil)}})
		if err != nil || got.Succeeded || got.Changed || got.Revision < first.Revision {
			k.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	got, err := k.kv.Txn(k.Context(), store.Txn{
		If:   []store.Compare{{Key: "a", ModRevision: first.Revision}, {Key: "c"}},
		Then: []store.Op{store.Put("a", []byte("2"))},
	})
	if err != nil || !got.Succeeded || !got.Changed || got.Revision <= first.Revision {
		k.Errorf("with compares that hold: %+v, %v", got, err)
	}
}

func testTxnRules(k *kvTest) {
	var many []store.Op
	for i := range store.MaxTxnOps + 1 {
		many = append(many, store.Put(strconv.Itoa(i), nil))
	}
	for name, t := range map[string]store.Txn{
		"twice the same key": {Then: []store.Op{store.Put("a", nil), store.Delete("a")}},
		"too many":           {Then: many},
		"empty key":          {Then: []store.Op{store.Put("", nil)}},
		"long key":           {Then: []store.Op{store.Delete(strings.Repeat("k", store.MaxKey+1))}},
		"empty compare":      {If: []store.Compare{{}}},
		"large value":        {Then: []store.Op{store.Put("a", make([]byte, store.MaxValue+1))}},
		"large transaction": {Then: []store.Op{
			store.Put("a", make([]byte, store.MaxValue)),
			store.Put("b", make([]byte, store.MaxTxnBytes-store.MaxValue)),
		}},
	} {
		if _, err := k.kv.Txn(k.Context(), t); !errors.Is(err, store.ErrInvalid) {
			k.Errorf("%s: %v", name, err)
		}
	}
	if items := k.snapshot(store.Span{}).Items; len(items) > 0 {
		k.Errorf("invalid transactions made %d items", len(items))
	}
	rev := k.txn(many[:store.MaxTxnOps]...)
	for _, item := range k.snapshot(store.Span{}).Items {
		if item.ModRevision != rev {
			k.Errorf("%s has revision %d in the transaction %d", item.Key, item.ModRevision, rev)
		}
	}
}

func testTxnNoChange(k *kvTest) {
	rev := k.put("a", "1")
	for name, ops := range map[string][]store.Op{"deleting nothing": {store.Delete("b")}, "the empty transaction": nil} {
		got, err := k.kv.Txn(k.Context(), store.Txn{Then: ops})
		if err != nil || !got.Succeeded || got.Changed || got.Revision < rev {
			k.Errorf("%s: %+v, %v, after revision %d", name, got, err, rev)
		}
	}
	if got := k.put("a", "1"); got <= rev || k.get("a").ModRevision != got {
		k.Errorf("putting the same value has revision %d after %d", got, rev)
	}
}

// testTxnConcurrent counts to 4*20 by compare and put: no step is lost. Each worker also puts an item
// of its own, so that no two transactions are equal.
func testTxnConcurrent(k *kvTest) {
	const workers, steps = 4, 20
	k.put("n", "0")
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			own := store.Compare{Key: "worker/" + strconv.Itoa(worker)}
			for done := 0; done < steps; {
				item, err := k.kv.Get(k.Context(), "n")
				if err != nil {
					k.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(item.Value))
				result, err := k.kv.Txn(k.Context(), store.Txn{
					If: []store.Compare{own, {Key: "n", ModRevision: item.ModRevision}},
					Then: []store.Op{
						store.Put(own.Key, strconv.AppendInt(nil, int64(done), 10)),
						store.Put("n", strconv.AppendInt(nil, int64(n+1), 10)),
					},
				})
				if err != nil {
					k.Error(err)
					return
				}
				if result.Succeeded {
					own.ModRevision = result.Revision
					done++
				}
			}
		})
	}
	wg.Wait()
	if got := string(k.get("n").Value); got != strconv.Itoa(workers*steps) {
		k.Errorf("counted to %s", got)
	}
}
