// Package storetest helps to test implementations of store.KV, and packages that use a
// store.Store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Backend is an implementation of store.KV.
type Backend struct {
	// Open returns an empty KV. The test closes it.
	Open func(t *testing.T) store.KV
	// Reopen restarts the process that serves kv, and returns the KV after that.
	Reopen func(t *testing.T, kv store.KV) store.KV
	// TTL is a short lease that the KV does not round; 0: it has no leases.
	TTL time.Duration
	// External is set if another process serves the KV. Tests then use the machine's clock.
	External bool
}

// RunKV runs the tests that every implementation of store.KV must pass, in bubbles of synctest
// unless the KV is external.
func RunKV(t *testing.T, b Backend) {
	tests := map[string]func(k *kvTest){
		"get":                   testGet,
		"revisions":             testRevisions,
		"each":                  testEach,
		"values are copies":     testCopies,
		"txn is all or nothing": testTxnAtomic,
		"txn compares":          testTxnCompares,
		"txn rules":             testTxnRules,
		"txn without change":    testTxnNoChange,
		"concurrent txns":       testTxnConcurrent,
		"watch past and future": testWatch,
		"watch span":            testWatchSpan,
		"watch next":            testWatchNext,
		"watch ends":            testWatchEnds,
		"watch misses nothing":  testWatchGapless,
		"watch before restart":  testWatchCompacted,
		"watch progress":        testWatchProgress,
		"watch from far behind": testWatchBehind,
		"restart":               testRestart,
		"backup":                testBackup,
		"closed":                testClosed,
	}
	if b.TTL > 0 {
		tests["lease ends"] = testLeaseEnds
		tests["lease kept alive"] = testLeaseKeptAlive
		tests["lease revoked"] = testLeaseRevoked
		tests["lease follows the last put"] = testLeaseReplaced
		tests["lease outlives a restart"] = testLeaseRestart
		tests["lease of a closed store"] = testLeaseClosed
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := func(t *testing.T) {
				k := &kvTest{T: t, Backend: b, kv: b.Open(t)}
				t.Cleanup(func() {
					if err := k.kv.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
						t.Errorf("closing: %v", err)
					}
				})
				f(k)
			}
			if b.External {
				test(t)
			} else {
				synctest.Test(t, test)
			}
		})
	}
}

// kvTest is one test with a KV, and helpers to use it.
type kvTest struct {
	*testing.T
	Backend
	kv store.KV
}

// txn runs a transaction that must succeed and returns its revision. It compares the items that it
// changes, so that it is applied once.
func (k *kvTest) txn(ops ...store.Op) int64 {
	k.Helper()
	t := store.Txn{Then: ops}
	for _, op := range ops {
		t.If = append(t.If, store.Compare{Key: op.Key, ModRevision: k.get(op.Key).ModRevision})
	}
	result, err := k.kv.Txn(k.Context(), t)
	if err != nil || !result.Succeeded {
		k.Fatalf("txn: %+v, %v", result, err)
	}
	return result.Revision
}

func (k *kvTest) put(key, value string) int64 {
	k.Helper()
	return k.txn(store.Put(key, []byte(value)))
}

func (k *kvTest) get(key string) store.Item {
	k.Helper()
	item, err := k.kv.Get(k.Context(), key)
	if err != nil {
		k.Fatalf("get %q: %v", key, err)
	}
	return item
}

func (k *kvTest) snapshot(span store.Span) store.Snapshot {
	k.Helper()
	snap, err := store.Range(k.Context(), k.kv, span)
	if err != nil {
		k.Fatalf("range: %v", err)
	}
	return snap
}

func (k *kvTest) watch(span store.Span, from int64) store.Watcher {
	k.Helper()
	w, err := k.kv.Watch(k.Context(), span, from)
	if err != nil {
		k.Fatalf("watch from %d: %v", from, err)
	}
	k.Cleanup(w.Close)
	return w
}

func (k *kvTest) lease(ttl time.Duration) store.Lease {
	k.Helper()
	l, err := k.kv.(store.Leaser).Lease(k.Context(), ttl)
	if err != nil {
		k.Fatalf("lease: %v", err)
	}
	return l
}

// next reads events until it has n, as "rev key=value" or "rev -key".
func (k *kvTest) next(w store.Watcher, n int) []string {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	defer cancel()
	var out []string
	for len(out) < n {
		batch, err := w.Next(ctx)
		if err != nil {
			k.Fatalf("next, after %q: %v", out, err)
		}
		for _, e := range batch.Events {
			if e.Item.ModRevision > batch.Revision {
				k.Errorf("event of revision %d in a batch up to %d", e.Item.ModRevision, batch.Revision)
			}
			out = append(out, eventString(e))
		}
	}
	return out
}

func (k *kvTest) silent(w store.Watcher) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), 50*time.Millisecond)
	defer cancel()
	for {
		batch, err := w.Next(ctx)
		if err == nil && len(batch.Events) == 0 {
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			k.Errorf("next: %v, %v, want nothing", batch, err)
		}
		return
	}
}

// gone waits until key is deleted and returns how long that took.
func (k *kvTest) gone(key string) time.Duration {
	k.Helper()
	start := time.Now()
	for k.get(key).Exists() {
		if time.Since(start) > patience+k.TTL {
			k.Fatalf("%q is still there", key)
		}
		time.Sleep(k.TTL / 50)
	}
	return time.Since(start)
}

func eventString(e store.Event) string {
	if e.Deleted {
		return fmt.Sprintf("%d -%s", e.Item.ModRevision, e.Item.Key)
	}
	return fmt.Sprintf("%d %s=%s", e.Item.ModRevision, e.Item.Key, e.Item.Value)
}

func equal[T comparable](k *kvTest, what string, got, want []T) {
	k.Helper()
	if !slices.Equal(got, want) {
		k.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func testGet(k *kvTest) {
	if item := k.get("a"); item.Exists() || item.Key != "a" || item.Value != nil {
		k.Errorf("a missing key gives %+v", item)
	}
	rev := k.put("a", "")
	if item := k.get("a"); !item.Exists() || len(item.Value) != 0 || item.ModRevision != rev {
		k.Errorf("an empty value gives %+v", item)
	}
	big := bytes.Repeat([]byte{0, 1, 255, '"'}, store.MaxValue/4)
	k.txn(store.Put(strings.Repeat("k", store.MaxKey), big))
	if item := k.get(strings.Repeat("k", store.MaxKey)); !bytes.Equal(item.Value, big) {
		k.Errorf("a large value came back different, %d bytes", len(item.Value))
	}
	if _, err := k.kv.Get(k.Context(), ""); !errors.Is(err, store.ErrInvalid) {
		k.Errorf("get of the empty key: %v", err)
	}
}

func testRevisions(k *kvTest) {
	if rev := k.snapshot(store.Span{}).Revision; rev <= 0 {
		k.Errorf("an empty KV is at revision %d", rev)
	}
	first := k.put("a", "1")
	second := k.put("b", "1")
	third := k.put("a", "2")
	if second <= first || third <= second {
		k.Errorf("revisions %d, %d, %d", first, second, third)
	}
	if a := k.get("a"); a.CreateRevision != first || a.ModRevision != third {
		k.Errorf("a was created in %d and changed in %d: %+v", first, third, a)
	}
	k.txn(store.Delete("a"))
	fifth := k.put("a", "3")
	if a := k.get("a"); a.CreateRevision != fifth || fifth <= third {
		k.Errorf("a was created anew in %d: %+v", fifth, a)
	}
}

func testEach(k *kvTest) {
	k.txn(store.Put("b/1", nil), store.Put("a", nil), store.Put("b/", nil), store.Put("b0", nil),
		store.Put("b/\xff", nil), store.Put("\xff\xff", nil))
	keys := func(span store.Span) []string {
		var out []string
		for _, i := range k.snapshot(span).Items {
			out = append(out, i.Key)
		}
		return out
	}
	equal(k, "all", keys(store.Span{}), []string{"a", "b/", "b/1", "b/\xff", "b0", "\xff\xff"})
	equal(k, "prefix", keys(store.Prefix("b/")), []string{"b/", "b/1", "b/\xff"})
	equal(k, "prefix of high bytes", keys(store.Prefix("\xff")), []string{"\xff\xff"})
	equal(k, "empty prefix", keys(store.Prefix("")), keys(store.Span{}))
	equal(k, "half open", keys(store.Span{Start: "a", End: "b/1"}), []string{"a", "b/"})
	equal(k, "from", keys(store.Span{Start: "b/1"}), []string{"b/1", "b/\xff", "b0", "\xff\xff"})
	equal(k, "nothing", keys(store.Span{Start: "c", End: "d"}), nil)
	var seen []string
	stop := errors.New("stop")
	_, err := k.kv.Each(k.Context(), store.Span{}, func(i store.Item) error {
		if seen = append(seen, i.Key); len(seen) == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		k.Errorf("an error of the function: %v", err)
	}
	equal(k, "until the error", seen, []string{"a", "b/"})
}

func testCopies(k *kvTest) {
	value := []byte("abc")
	k.txn(store.Put("a", value))
	value[0] = 'X'
	k.get("a").Value[0] = 'Y'
	k.snapshot(store.Span{}).Items[0].Value[0] = 'Z'
	if got := k.get("a").Value; string(got) != "abc" {
		k.Errorf("the value became %q", got)
	}
}

func testRestart(k *kvTest) {
	k.put("a", "1")
	k.txn(store.Put("a", []byte("2")), store.Put("b", nil))
	k.txn(store.Delete("b"))
	before, a := k.snapshot(store.Span{}), k.get("a")
	k.kv = k.Reopen(k.T, k.kv)
	after := k.snapshot(store.Span{})
	if after.Revision < before.Revision || len(after.Items) != 1 {
		k.Errorf("before %+v, after %+v", before, after)
	}
	if got := k.get("a"); got.ModRevision != a.ModRevision || got.CreateRevision != a.CreateRevision ||
		string(got.Value) != "2" {
		k.Errorf("before %+v, after %+v", a, got)
	}
	if rev := k.put("c", ""); rev <= before.Revision {
		k.Errorf("the first revision after %d is %d", before.Revision, rev)
	}
}

func testBackup(k *kvTest) {
	k.put("a", "1")
	k.txn(store.Put("a", []byte("2")), store.Put("b", nil))
	before, path := k.snapshot(store.Span{}), filepath.Join(k.TempDir(), "backup.db")
	file, err := os.Create(path)
	if err != nil {
		k.Fatal(err)
	}
	if err := errors.Join(k.kv.Backup(k.Context(), file), file.Close()); err != nil {
		k.Fatal(err)
	}
	k.put("a", "3")
	after, err := store.Range(k.Context(), OpenBolt(k, path), store.Span{})
	if err != nil || !reflect.DeepEqual(after, before) {
		k.Errorf("the store has %+v, its backup %+v, %v", before, after, err)
	}
}

func testClosed(k *kvTest) {
	w := k.watch(store.Span{}, 0)
	waiting := make(chan error)
	go func() {
		_, err := w.Next(k.Context())
		waiting <- err
	}()
	if err := k.kv.Close(); err != nil {
		k.Fatal(err)
	}
	errs := map[string]error{"next": <-waiting}
	_, errs["get"] = k.kv.Get(k.Context(), "a")
	_, errs["each"] = store.Range(k.Context(), k.kv, store.Span{})
	_, errs["progress"] = w.Progress(k.Context())
	_, errs["txn"] = k.kv.Txn(k.Context(), store.Txn{})
	_, errs["watch"] = k.kv.Watch(k.Context(), store.Span{}, 0)
	errs["close"] = k.kv.Close()
	for name, err := range errs {
		if !errors.Is(err, store.ErrClosed) {
			k.Errorf("%s: %v", name, err)
		}
	}
}
