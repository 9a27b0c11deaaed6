package store

import (
	"encoding/json"
	"fmt"
	"strings"
)

// recordVersion is that of all records this program writes. A change that an
// older program would misread takes a new one; adding a field that it may
// ignore does not.
const recordVersion = 1

// header is what all records begin with. The version must be understood before
// anything else.
type header struct {
	V int `json:"v"`

	use *use // when it was last used, in the view and for kinds that note it
}

func (h *header) head() *header { return h }

// record is what a kind needs to know of its records.
type record interface {
	head() *header
	place() key   // within the kind
	check() error // what makes the record invalid at its place
}

// key is the place of a record within its kind: the account or user that it
// belongs to, and its id or name.
type key struct{ owner, id string }

// kind is one kind of records: where they are, how they are read, and what the
// view does with them. All kinds stand in kinds.go.
type kind[R any, P interface {
	*R
	record
}] struct {
	dir    string
	prefix string // of ids, which are unique; "": the records have names
	seenAt string // directory of the times of use; "": they are not noted

	// in is where the view has the records; nil: it does not.
	in func(*records) *collection[P]
	// index is by what a record is found besides its place: the hash of a secret,
	// a code or a name. It may be nil.
	index func(P) digest
	// change is what subscribers get, if it has a kind. It may be nil.
	change func(*records, P) Change
	// adopt has next, which is not in the view yet, take over what outlives old,
	// which is nil for a new record. It may be nil.
	adopt func(d *draft, old, next P)
	// removed is called for a record that has left the view. It may be nil.
	removed func(d *draft, old P)
}

// path returns the key in the KV of a record at its place.
func (k *kind[R, P]) path(owner, id string) string {
	if owner == "" {
		return k.dir + id
	}
	return k.dir + owner + "/" + id
}

// usePath returns the key in the KV of the time of use of a record.
func (k *kind[R, P]) usePath(owner, id string) string { return k.seenAt + owner + "/" + id }

// span is the beginning of the keys of all records of an owner.
func (k *kind[R, P]) span(owner string) string { return k.dir + owner + "/" }

// slot is the key of a record in the view: ids need no owner.
func (k *kind[R, P]) slot(at key) key {
	if k.prefix != "" {
		at.owner = ""
	}
	return at
}

// decode reads a record and checks that it is valid where it is.
func (k *kind[R, P]) decode(item Item) (P, error) {
	r := P(new(R))
	if err := decode(item, r); err != nil {
		return nil, err
	}
	at := r.place()
	if item.Key != k.path(at.owner, at.id) || at.id == "" || k.prefix != "" && !checkID(k.prefix, at.id) {
		return nil, damaged(item, "its id is not that of its place")
	}
	if err := r.check(); err != nil {
		return nil, damaged(item, err.Error())
	}
	return r, nil
}

// apply brings a record into the view.
func (k *kind[R, P]) apply(d *draft, item Item) error {
	next, err := k.decode(item)
	if err != nil {
		return err
	}
	c, at := k.in(&d.records), k.slot(next.place())
	old := c.byID.value(at)
	switch {
	case old != nil:
		next.head().use = old.head().use
		k.unindex(d, c, old)
	case k.seenAt != "":
		place := next.place()
		next.head().use = &use{path: k.usePath(place.owner, place.id)}
	}
	if k.adopt != nil {
		k.adopt(d, old, next)
	}
	c.byID.set(d.edit, at, next)
	if k.index != nil {
		c.byHash.set(d.edit, k.index(next), next)
	}
	k.report(d, next, old == nil, false)
	return nil
}

// drop takes a record out of the view.
func (k *kind[R, P]) drop(d *draft, at key) {
	c := k.in(&d.records)
	old := c.byID.value(k.slot(at))
	if old == nil || old.place() != at {
		return
	}
	c.byID.remove(d.edit, k.slot(at))
	k.unindex(d, c, old)
	if k.removed != nil {
		k.removed(d, old)
	}
	k.report(d, old, false, true)
}

// unindex removes a record from the index, unless a later one has the same
// hash: claim codes are short enough for that to happen one day.
func (k *kind[R, P]) unindex(d *draft, c *collection[P], old P) {
	if k.index != nil && c.byHash.value(k.index(old)) == old {
		c.byHash.remove(d.edit, k.index(old))
	}
}

// report counts a record that came or left, and notes the change for the
// subscribers.
func (k *kind[R, P]) report(d *draft, r P, came, left bool) {
	if k.change == nil {
		return
	}
	change := k.change(&d.records, r)
	if change.Kind == "" {
		return
	}
	if change.ID == r.place().id { // not of a passkey, which is a change of its user
		d.count(change.Account, change.Kind, came, left)
		change.Removed = change.Removed || left
	}
	d.changes = append(d.changes, change)
}

// each calls f with the keys in the KV of all records in the view.
func (k *kind[R, P]) each(r *records, f func(path string)) {
	for _, record := range k.in(r).byID.all() {
		at := record.place()
		f(k.path(at.owner, at.id))
	}
}

// timesOf are the times at which the records of a kind were used. The layout
// has them behind the records, which are there when the KV is read in order.
type timesOf[R any, P interface {
	*R
	record
}] struct{ kind *kind[R, P] }

func (t timesOf[R, P]) apply(d *draft, item Item) error {
	var r lastUsedRecord
	if err := decode(item, &r); err != nil {
		return err
	}
	_, at := splitPath(item.Key)
	used := t.kind.in(&d.records).byID.value(t.kind.slot(at))
	if used != nil && used.place() == at {
		used.head().use.load(r.LastUsedAt)
	}
	return nil
}

func (timesOf[R, P]) drop(*draft, key)                 {}
func (timesOf[R, P]) each(*records, func(path string)) {}

// decode reads a record and checks that it is of a version that this program
// knows. The text of its errors has no value, which may be a secret.
func decode(item Item, record any) error {
	var h header
	if err := json.Unmarshal(item.Value, &h); err != nil {
		return Errorf(ErrSchema, "the record %s is damaged: %v", item.Key, err)
	}
	switch {
	case h.V > recordVersion:
		return Errorf(ErrSchema, "the record %s has version %d, and this program knows only %d: "+
			"it was written by a newer Postern, so run that one", item.Key, h.V, recordVersion)
	case h.V < recordVersion:
		return damaged(item, "it has no version")
	}
	if err := json.Unmarshal(item.Value, record); err != nil {
		return Errorf(ErrSchema, "the record %s is damaged: %v", item.Key, err)
	}
	return nil
}

func damaged(item Item, what string) error {
	return Errorf(ErrSchema, "the record %s is damaged: %s", item.Key, what)
}

// encode returns the put of a record, with the version of this program.
func encode(path string, record interface{ head() *header }) (Op, error) {
	record.head().V = recordVersion
	value, err := json.Marshal(record)
	if err != nil {
		return Op{}, fmt.Errorf("encoding the record %s: %w", path, err)
	}
	return Put(path, value), nil
}

// splitPath divides a key of the layout into its directory and the place there.
func splitPath(path string) (dir string, at key) {
	dir, rest, _ := strings.Cut(path, "/")
	dir += "/"
	switch dir {
	case dirAccounts, dirConnectorUses, dirMarks, dirRecent, dirSecrets, dirUserNames:
		return dir, key{id: rest}
	}
	at.owner, at.id, _ = strings.Cut(rest, "/")
	return dir, at
}
