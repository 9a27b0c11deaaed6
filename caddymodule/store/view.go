package store

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// watched is the span of the keys that the view is read from.
var watched = Span{End: dirUnwatched}

// view is the state of the store at one revision, in memory. It is immutable except for
// LiveKeys and times of use, so readers need no lock.
type view struct {
	revision int64
	records
}

// collection holds the records of one kind.
type collection[P any] struct {
	byOwner table[string, table[string, P]] // by owner and id
	byID    table[string, P]                // of kinds whose ids are unique
	byHash  table[digest, P]                // of kinds with an index
}

// byHash returns the record with a hash, or an empty one.
func (k *kind[R, P]) byHash(v *view, hash digest) (P, bool) {
	return k.orNone(k.collection(&v.records).byHash.get(hash))
}

// bySecret returns the record of a secret, or an empty one. The zero hash of an invalid
// secret matches no record.
func (k *kind[R, P]) bySecret(v *view, secret string) (P, bool) {
	hash, _ := hashSecret(k.secret, secret)
	return k.byHash(v, hash)
}

// lookup returns the record of an owner with this id, or an empty one.
func (k *kind[R, P]) lookup(v *view, owner, id string) (P, bool) {
	return k.orNone(k.get(&v.records, recordKey{owner, id}))
}

// get returns the record with a key. Unique ids need no owner.
func (k *kind[R, P]) get(r *records, key recordKey) (P, bool) {
	c := k.collection(r)
	if k.prefix != "" {
		return c.byID.get(key.id)
	}
	return c.byOwner.value(key.owner).get(key.id)
}

func (k *kind[R, P]) orNone(r P, ok bool) (P, bool) {
	if !ok {
		r = P(&k.none)
	}
	return r, ok
}

// byID is lookup for accounts and for kinds whose ids are unique.
func (k *kind[R, P]) byID(v *view, id string) (P, bool) { return k.lookup(v, "", id) }

// owned iterates over the records of an owner in unspecified order.
func (k *kind[R, P]) owned(v *view, owner string) iter.Seq[P] {
	return func(yield func(P) bool) {
		for _, r := range k.collection(&v.records).byOwner.value(owner).all() {
			if !yield(r) {
				return
			}
		}
	}
}

// count returns the number of records of an owner.
func (k *kind[R, P]) count(v *view, owner string) int {
	return k.collection(&v.records).byOwner.value(owner).size
}

// all iterates over all records in unspecified order.
func (k *kind[R, P]) all(r *records) iter.Seq[P] {
	return func(yield func(P) bool) {
		for _, owned := range k.collection(r).byOwner.all() {
			for _, r := range owned.all() {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// list converts records in the order of their ids, which is the order of creation. It omits
// records for which convert returns false.
func list[P record, T any](records iter.Seq[P], convert func(P) (T, bool)) []T {
	byID := func(a, b P) int { return cmp.Compare(a.key().id, b.key().id) }
	var out []T
	for _, r := range slices.SortedFunc(records, byID) {
		if t, ok := convert(r); ok {
			out = append(out, t)
		}
	}
	return out
}

// draft is a view that is being built from the old one and the changes of a batch.
type draft struct {
	records
	edit *edit

	now     time.Time
	first   bool         // there are no subscribers yet
	updates []*keyRecord // of existing LiveKeys; publish applies them
	keys    []*keyRecord // that were read; bindKeys binds them
	rebound []string     // accounts; see rebind
	changes []Change
}

func (v *view) draft(now time.Time) *draft {
	return &draft{records: v.records, edit: new(edit), now: now}
}

func (d *draft) view(revision int64) *view { return &view{revision, d.records} }

// apply applies one change. If its record cannot be read, it deletes the record from the view
// and returns the error.
func (d *draft) apply(e Event) error {
	path := e.Item.Key
	if path == identityPath {
		return d.applyIdentity(e)
	}
	if path == keysNeedPath {
		return d.applyKeysNeed(e)
	}
	dir, key := splitPath(path)
	kind, ok := viewed[dir]
	if !ok {
		return nil
	}
	d.orphans.remove(d.edit, path)
	d.unreadable.remove(d.edit, path)
	var err error
	if !e.Deleted {
		if err = kind.apply(d, dir, key, e.Item); err == nil {
			return nil
		}
		d.unreadable.set(d.edit, path, e.Item.ModRevision)
	}
	kind.drop(d, dir, key)
	return err
}
