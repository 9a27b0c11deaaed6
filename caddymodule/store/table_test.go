package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// A table is a map whose old states do not change.
func TestTable(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var now table[recordKey, int]
	want := map[recordKey]int{}
	type state struct {
		table table[recordKey, int]
		want  map[recordKey]int
	}
	var states []state
	for range 50 {
		e := new(edit)
		for range rng.IntN(40) {
			k := recordKey{"owner", fmt.Sprint("k", rng.IntN(300))}
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
		if _, ok := s.table.get(recordKey{"owner", "none"}); ok {
			t.Fatal("what is not there is found")
		}
	}
}

// viewOf returns a view with this many keys in one account, and 100 in the account "few".
func viewOf(t testing.TB, keys int) *view {
	d := new(view).draft(time.Now())
	d.first = true
	for i := range keys {
		putKey(t, d, DefaultAccount, i)
	}
	for i := range 100 {
		putKey(t, d, "few", keys+i)
	}
	v := d.view(1)
	if v.keys.byID.size != keys+100 || v.keys.byHash.size != keys+100 || keyKind.count(v, DefaultAccount) != keys {
		t.Fatalf("%d keys, %d hashes, %d keys of the account", v.keys.byID.size, v.keys.byHash.size,
			keyKind.count(v, DefaultAccount))
	}
	return v
}

// putKey applies the event of a new key.
func putKey(t testing.TB, d *draft, account string, i int) {
	hash := digest{byte(i), byte(i >> 8), byte(i >> 16), 1}
	k := Key{
		ID: fmt.Sprintf("%s%025d0", prefixKey, i), Account: account,
		KeyFields: KeyFields{Name: "k", Scope: "*"},
	}
	op, err := encode(keyKind.path(account, k.ID), &keyRecord{Key: k, Hash: hash})
	if err == nil {
		err = d.apply(Event{Item: Item{Key: op.Key, Value: op.Value, ModRevision: 1}})
	}
	must(t, err)
}

// The bytes that a write copies, and the time of a listing, do not grow with the number of keys.
func TestViewIsNotLinear(t *testing.T) {
	const few, many, writes = 600, 16 * 600, 50
	cost := func(keys int) (copied uint64, listing time.Duration) {
		v := viewOf(t, keys)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range writes {
			d := v.draft(time.Now())
			putKey(t, d, DefaultAccount, keys+100+i)
			v = d.view(int64(i))
		}
		runtime.ReadMemStats(&after)
		s := newStore(nil, Options{})
		s.view.Store(v)
		listing = time.Hour
		for range 20 {
			start := time.Now()
			if n := len(s.Keys("few")); n != 100 {
				t.Fatalf("%d keys", n)
			}
			listing = min(listing, time.Since(start))
		}
		return (after.TotalAlloc - before.TotalAlloc) / writes, listing
	}
	copied, listing := cost(few)
	copiedMany, listingMany := cost(many)
	t.Logf("a write allocates %d bytes, a listing takes %v; with 16 times the keys %d bytes and %v", copied, listing,
		copiedMany, listingMany)
	if copiedMany > 2*copied {
		t.Errorf("a write allocates %d bytes in addition to %d keys, %d in addition to %d", copied, few, copiedMany, many)
	}
	if listingMany > 4*listing {
		t.Errorf("a listing of 100 keys takes %v with %d others, %v with %d", listing, few, listingMany, many)
	}
}
