package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// A table is a map of which old states stay as they were.
func TestTable(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var now table[key, int]
	want := map[key]int{}
	type state struct {
		table table[key, int]
		want  map[key]int
	}
	var states []state
	for range 50 {
		e := new(edit)
		for range rng.IntN(40) {
			k := key{"owner", fmt.Sprint("k", rng.IntN(300))}
			if rng.IntN(3) == 0 {
				now.remove(e, k)
				delete(want, k)
			} else {
				v := rng.IntN(1000)
				now.set(e, k, v)
				want[k] = v
			}
		}
		states = append(states, state{now, maps.Clone(want)})
	}
	for i, s := range states {
		if got := maps.Collect(s.table.all()); !maps.Equal(got, s.want) || s.table.size != len(s.want) {
			t.Fatalf("state %d has %d of size %d, want %d", i, len(got), s.table.size, len(s.want))
		}
		for k, v := range s.want {
			if got, ok := s.table.get(k); !ok || got != v {
				t.Fatalf("state %d: %s is %d, %v", i, k, got, ok)
			}
		}
		if _, ok := s.table.get(key{"owner", "none"}); ok {
			t.Fatal("what is not there is found")
		}
	}
}

// A write copies a small part of what there is, however much that is.
func TestWriteCopiesLittle(t *testing.T) {
	const records = 20_000
	d := new(view).draft(time.Now())
	put := func(d *draft, i int) {
		now := time.UnixMilli(int64(i))
		k := Key{ID: newID(prefixKey, now), Account: DefaultAccount, Name: "k", Scope: "*"}
		op, err := encode(keyKind.path(DefaultAccount, k.ID), &keyRecord{Key: k, Hash: digest{byte(i), byte(i >> 8), 1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.apply(Event{Item: Item{Key: op.Key, Value: op.Value, ModRevision: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range records {
		put(d, i)
	}
	v := d.view(1)
	if v.keys.byID.size != records || v.keys.byHash.size != records {
		t.Fatalf("%d keys, %d hashes", v.keys.byID.size, v.keys.byHash.size)
	}
	const writes = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range writes {
		d := v.draft(time.Now())
		put(d, records+i)
		v = d.view(int64(i))
	}
	runtime.ReadMemStats(&after)
	// The two maps as a whole would be more than 2 MB each time.
	if each := (after.TotalAlloc - before.TotalAlloc) / writes; each > 128<<10 {
		t.Errorf("a write beside %d keys allocates %d bytes", records, each)
	}
}
