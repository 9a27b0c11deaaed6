package store

import (
	"hash/maphash"
	"iter"
	"slices"
)

const (
	tableFan  = 16 // children of a branch
	tableLeaf = 16 // entries of a leaf before it is split
)

// table is a persistent hash map: a tree whose copies share all nodes that neither has changed.
// A change copies only the nodes on the path to one leaf. A table in a view never changes, so
// readers need no lock. The zero value is empty.
type table[K comparable, V any] struct {
	root *node[K, V]
	size int
}

// node is a leaf, or a branch: each level uses the next bits of the hash of a key.
type node[K comparable, V any] struct {
	edit     *edit                  // its owner, which may change it
	entries  []entry[K, V]          // of a leaf
	children *[tableFan]*node[K, V] // of a branch; nil: a leaf
}

// entry caches the hash of its key: a comparison of hashes saves most comparisons of keys.
type entry[K comparable, V any] struct {
	hash  uint64
	key   K
	value V
}

// edit identifies a draft, which owns the nodes that it has created.
type edit struct{ _ byte }

var tableSeed = maphash.MakeSeed()

func hashKey[K comparable](k K) uint64 { return maphash.Comparable(tableSeed, k) }

func (t table[K, V]) get(k K) (V, bool) {
	if t.root != nil {
		n, hash := t.root, hashKey(k)
		for bits := hash; n != nil && n.children != nil; bits /= tableFan {
			n = n.children[bits%tableFan]
		}
		if i := n.index(hash, k); i >= 0 {
			return n.entries[i].value, true
		}
	}
	var none V
	return none, false
}

// value is get, or the zero value.
func (t table[K, V]) value(k K) V {
	v, _ := t.get(k)
	return v
}

// all iterates over the table in unspecified order.
func (t table[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.root.each(yield) }
}

func (t *table[K, V]) set(e *edit, k K, v V) {
	hash, depth := hashKey(k), 0
	child := &t.root
	for bits := hash; ; bits /= tableFan {
		*child = (*child).own(e)
		if (*child).children == nil {
			break
		}
		child = &(*child).children[bits%tableFan]
		depth++
	}
	leaf := *child
	if i := leaf.index(hash, k); i >= 0 {
		leaf.entries[i].value = v
		return
	}
	t.size++
	leaf.entries = append(leaf.entries, entry[K, V]{hash, k, v})
	if len(leaf.entries) > tableLeaf {
		leaf.split(depth)
	}
}

func (t *table[K, V]) remove(e *edit, k K) {
	if _, ok := t.get(k); ok {
		t.root = t.root.without(e, k, hashKey(k))
		t.size--
	}
}

// index returns the index of a key with this hash in a leaf, or -1.
func (n *node[K, V]) index(hash uint64, k K) int {
	if n != nil {
		for i := range n.entries {
			if n.entries[i].hash == hash && n.entries[i].key == k {
				return i
			}
		}
	}
	return -1
}

// own returns the node for e to change, copied if necessary. For nil it returns an empty leaf.
func (n *node[K, V]) own(e *edit) *node[K, V] {
	if n == nil {
		return &node[K, V]{edit: e}
	}
	if n.edit == e {
		return n
	}
	own := &node[K, V]{edit: e, entries: slices.Clone(n.entries)}
	if n.children != nil {
		children := *n.children
		own.children = &children
	}
	return own
}

// split makes a leaf at this depth a branch, unless the bits of its hashes are used up.
func (n *node[K, V]) split(depth int) {
	const bits = 4 // of tableFan
	if depth*bits >= 64 {
		return
	}
	n.children = new([tableFan]*node[K, V])
	for _, e := range n.entries {
		child := &n.children[e.hash>>(depth*bits)%tableFan]
		*child = (*child).own(n.edit)
		(*child).entries = append((*child).entries, e)
	}
	n.entries = nil
}

// without returns the node without a key that it contains. bits are the remaining bits of the
// key's hash. The result is nil if the node is empty.
func (n *node[K, V]) without(e *edit, k K, bits uint64) *node[K, V] {
	n = n.own(e)
	if n.children == nil {
		i := n.index(hashKey(k), k)
		n.entries = slices.Delete(n.entries, i, i+1)
		if len(n.entries) == 0 {
			return nil
		}
		return n
	}
	child := &n.children[bits%tableFan]
	*child = (*child).without(e, k, bits/tableFan)
	if *n.children == [tableFan]*node[K, V]{} {
		return nil
	}
	return n
}

func (n *node[K, V]) each(yield func(K, V) bool) bool {
	switch {
	case n == nil:
		return true
	case n.children == nil:
		for _, e := range n.entries {
			if !yield(e.key, e.value) {
				return false
			}
		}
		return true
	}
	for _, child := range n.children {
		if !child.each(yield) {
			return false
		}
	}
	return true
}
