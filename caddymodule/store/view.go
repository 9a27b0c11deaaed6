package store

import (
	"cmp"
	"slices"
	"time"
)

// view is the state of the store at one revision, in memory. It is immutable
// but for the LiveKeys and the times of use, so that readers need no lock.
type view struct {
	revision int64
	records
}

// collection has the records of one kind.
type collection[P any] struct {
	byID   table[key, P]
	byHash table[digest, P]
}

// named returns the record with an id, for kinds whose ids are unique.
func (c *collection[P]) named(id string) (P, bool) { return c.byID.get(key{id: id}) }

// list returns what convert makes of the records of an owner, in the order of
// their ids, which is that of their creation. It leaves out those for which
// convert returns false.
func list[P record, T any](c *collection[P], owner string, convert func(P) (T, bool)) []T {
	var chosen []P
	for _, r := range c.byID.all() {
		if r.place().owner == owner {
			chosen = append(chosen, r)
		}
	}
	slices.SortFunc(chosen, func(a, b P) int { return cmp.Compare(a.place().id, b.place().id) })
	var out []T
	for _, r := range chosen {
		if t, ok := convert(r); ok {
			out = append(out, t)
		}
	}
	return out
}

// user returns the user with an id.
func (r *records) user(id string) (*userRecord, bool) { return r.users.named(id) }

// draft is a view in the making: the old one and what a batch changes.
type draft struct {
	records
	edit *edit

	now     time.Time
	updates []*keyRecord // of keys that have a LiveKey already, for when the view is published
	changes []Change
}

func (v *view) draft(now time.Time) *draft {
	return &draft{records: v.records, edit: new(edit), now: now}
}

func (d *draft) view(revision int64) *view { return &view{revision, d.records} }

// apply makes one change. When its record cannot be read, it makes the change
// a deletion, and returns the error.
func (d *draft) apply(e Event) error {
	dir, at := splitPath(e.Item.Key)
	kind, ok := viewed[dir]
	if !ok {
		return nil
	}
	if !e.Deleted {
		err := kind.apply(d, e.Item)
		if err == nil {
			return nil
		}
		kind.drop(d, at)
		return err
	}
	kind.drop(d, at)
	return nil
}

// count notes that an account has one record more or less of a kind.
func (d *draft) count(account, kind string, came, left bool) {
	name := key{kind, account}
	n := d.owned.value(name)
	switch {
	case came:
		d.owned.set(d.edit, name, n+1)
	case left && n == 1:
		d.owned.remove(d.edit, name)
	case left:
		d.owned.set(d.edit, name, n-1)
	}
}

// missing returns deletions of everything in the view that is not among items.
func (v *view) missing(items []Item) []Event {
	present := make(map[string]bool, len(items))
	for _, i := range items {
		present[i.Key] = true
	}
	var events []Event
	for _, kind := range viewed {
		kind.each(&v.records, func(path string) {
			if !present[path] {
				events = append(events, Event{Item: Item{Key: path}, Deleted: true})
			}
		})
	}
	return events
}
