package cluster

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestTxnUnanswered loses the answers of transactions that were applied.
func TestTxnUnanswered(t *testing.T) {
	t.Parallel()
	s := start(t, 1)[0]
	for name, test := range map[string]struct {
		ops     []store.Op
		compare []store.Compare
		changed bool
	}{
		"create":         {[]store.Op{store.Put("new", nil)}, []store.Compare{{Key: "new"}}, true},
		"delete":         {[]store.Op{store.Delete("old")}, nil, true},
		"delete nothing": {[]store.Op{store.Delete("none")}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t, s)
			direct, kv := open(t, s.url), open(t, p.url)
			if _, err := direct.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("old", nil), store.Delete("new")}}); err != nil {
				t.Fatal(err)
			}
			before, err := store.Range(t.Context(), direct, store.Span{})
			if err != nil {
				t.Fatal(err)
			}
			p.answers.Store(true)
			time.AfterFunc(time.Second, func() {
				p.answers.Store(false)
				p.cut()
			})
			result, err := kv.Txn(t.Context(), store.Txn{If: test.compare, Then: test.ops})
			if err != nil || !result.Succeeded || result.Changed != test.changed || result.Revision != before.Revision+1 {
				t.Errorf("after revision %d: %+v, %v", before.Revision, result, err)
			}
			// The slot is known again.
			if result, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("next", nil)}}); err != nil || !result.Succeeded {
				t.Errorf("the next transaction: %+v, %v", result, err)
			}
		})
	}
}

// TestTxnLate holds the first attempt of a transaction back until a second one was applied
// and its compare holds again.
func TestTxnLate(t *testing.T) {
	t.Parallel()
	s := start(t, 1)[0]
	ways := []*proxy{newProxy(t, s), newProxy(t, s)}
	direct, kv := open(t, s.url), open(t, ways[0].url, ways[1].url)
	for _, p := range ways {
		p.hold.Store(true)
	}
	done := make(chan error)
	go func() {
		result, err := kv.Txn(t.Context(), store.Txn{If: []store.Compare{{Key: "late"}}, Then: []store.Op{store.Put("late", nil)}})
		if err != nil || !result.Succeeded {
			t.Errorf("the transaction: %+v, %v", result, err)
		}
		done <- err
	}()
	var way *proxy // of the first attempt
	wait.Until(t, "an attempt", func() bool {
		i := slices.IndexFunc(ways, func(p *proxy) bool { return bytes.Contains(p.heldBytes(), []byte("postern/late")) })
		if i >= 0 {
			way = ways[i]
		}
		return i >= 0
	})
	way.full.Store(true) // without the end of the attempt
	for _, p := range ways {
		if p != way {
			p.release()
		}
	}
	if <-done != nil {
		return
	}
	if _, err := direct.Txn(t.Context(), store.Txn{Then: []store.Op{store.Delete("late")}}); err != nil {
		t.Fatal(err)
	}
	way.release()
	time.Sleep(time.Second)
	if item, err := direct.Get(t.Context(), "late"); err != nil || item.Exists() {
		t.Errorf("the late attempt was applied: %+v, %v", item, err)
	}
}
