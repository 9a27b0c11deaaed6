package store

import (
	"hash/maphash"
	"iter"
	"maps"
)

// tableShards is the number of maps in a table, one for each bit of table.copied.
const tableShards = 64

// table is a copy-on-write map. Views share unchanged shards: a change copies only its own
// shard. A table in a view is never changed, so readers need no lock. The zero value is
// empty.
type table[K comparable, V any] struct {
	shards *[tableShards]map[K]V
	size   int
	// copied is the set of shards that edit has copied and may change.
	copied uint64
	edit   *edit
}

// edit identifies a draft, which owns the shards that it has copied.
type edit struct{ _ byte }

var shardSeed = maphash.MakeSeed()

func shardOf[K comparable](k K) int { return int(maphash.Comparable(shardSeed, k) % tableShards) }

func (t *table[K, V]) get(k K) (V, bool) {
	if t.shards == nil {
		var none V
		return none, false
	}
	v, ok := t.shards[shardOf(k)][k]
	return v, ok
}

// value is get, or the zero value.
func (t *table[K, V]) value(k K) V {
	v, _ := t.get(k)
	return v
}

// all iterates over the table in unspecified order.
func (t *table[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.shards == nil {
			return
		}
		for _, shard := range t.shards {
			for k, v := range shard {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

func (t *table[K, V]) set(e *edit, k K, v V) {
	shard := t.own(e, k)
	before := len(shard)
	shard[k] = v
	t.size += len(shard) - before
}

func (t *table[K, V]) remove(e *edit, k K) {
	shard := t.own(e, k)
	before := len(shard)
	delete(shard, k)
	t.size += len(shard) - before
}

// own returns the shard of k, copied if necessary, for e to change.
func (t *table[K, V]) own(e *edit, k K) map[K]V {
	if t.edit != e {
		shards := new([tableShards]map[K]V)
		if t.shards != nil {
			*shards = *t.shards
		}
		t.shards, t.edit, t.copied = shards, e, 0
	}
	i := shardOf(k)
	if bit := uint64(1) << i; t.copied&bit == 0 {
		t.copied |= bit
		if t.shards[i] = maps.Clone(t.shards[i]); t.shards[i] == nil {
			t.shards[i] = make(map[K]V)
		}
	}
	return t.shards[i]
}
