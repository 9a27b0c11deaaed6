package store

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// view is the state of the store at one revision, in memory. It is immutable except for
// LiveKeys and times of use, so readers need no lock.
type view struct {
	revision int64
	records
}

// collection holds the records of one kind.
type collection[P any] struct {
	byID   table[key, P]
	byHash table[digest, P]
}

// find returns the record with a hash, or an empty one.
func (k *kind[R, P]) find(v *view, hash digest) (P, bool) {
	return k.orNone(k.in(&v.records).byHash.get(hash))
}

// bySecret returns the record of a secret, or an empty one. The zero hash of an invalid
// secret matches no record.
func (k *kind[R, P]) bySecret(v *view, secret string) (P, bool) {
	hash, _ := hashSecret(k.secret, secret)
	return k.find(v, hash)
}

// at returns the record of an owner, or an empty one.
func (k *kind[R, P]) at(v *view, owner, id string) (P, bool) {
	return k.orNone(k.in(&v.records).byID.get(k.slot(key{owner, id})))
}

func (k *kind[R, P]) orNone(r P, ok bool) (P, bool) {
	if !ok {
		r = P(&k.none)
	}
	return r, ok
}

// named is at for accounts and for kinds whose ids are unique.
func (k *kind[R, P]) named(v *view, id string) (P, bool) { return k.at(v, "", id) }

// of iterates over the records of an owner in unspecified order.
func (k *kind[R, P]) of(v *view, owner string) iter.Seq[P] {
	return func(yield func(P) bool) {
		for _, r := range k.in(&v.records).byID.all() {
			if r.place().owner == owner && !yield(r) {
				return
			}
		}
	}
}

// list converts records in the order of their ids, which is the order of creation. It omits
// records for which convert returns false.
func list[P record, T any](records iter.Seq[P], convert func(P) (T, bool)) []T {
	byID := func(a, b P) int { return cmp.Compare(a.place().id, b.place().id) }
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
	updates []*keyRecord // of existing LiveKeys, applied when the view is published
	changes []Change
}

func (v *view) draft(now time.Time) *draft {
	return &draft{records: v.records, edit: new(edit), now: now}
}

func (d *draft) view(revision int64) *view { return &view{revision, d.records} }

// apply applies one change. If its record cannot be read, it deletes the record from the view
// and returns the error.
func (d *draft) apply(e Event) error {
	dir, at := splitPath(e.Item.Key)
	kind, ok := viewed[dir]
	if !ok {
		return nil
	}
	var err error
	if !e.Deleted {
		if err = kind.apply(d, dir, at, e.Item); err == nil {
			return nil
		}
	}
	kind.drop(d, dir, at)
	return err
}

// count changes the number of records of a kind that an account has.
func (d *draft) count(account, kind string, by int) {
	name := key{kind, account}
	if n := d.owned.value(name) + by; n > 0 {
		d.owned.set(d.edit, name, n)
	} else {
		d.owned.remove(d.edit, name)
	}
}

// missing returns deletions of all records in the view that are not in items.
func (v *view) missing(items []Item) []Event {
	present := make(map[string]bool, len(items))
	for _, i := range items {
		present[i.Key] = true
	}
	var events []Event
	for _, kind := range kinds {
		kind.each(&v.records, func(path string) {
			if !present[path] {
				events = append(events, Event{Item: Item{Key: path}, Deleted: true})
			}
		})
	}
	return events
}
