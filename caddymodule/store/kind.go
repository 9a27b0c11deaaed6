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

	revision int64 // of the record's last change, in the view
	use      *use  // when it was last used, in the view and for kinds that note it
}

func (h *header) head() *header { return h }

// The defaults of records whose changes need no name or state, or that have no rule.
func (h *header) label() string { return "" }
func (h *header) state() string { return "" }
func (h *header) check() error  { return nil }

// record is what a kind needs to know of its records.
type record interface {
	head() *header
	place() key    // within the kind
	label() string // Change.Name
	state() string // Change.State
	check() error  // what makes the record invalid at its place
}

// key is the place of a record within its kind: the account or user that it
// belongs to, and its id or name.
type key struct{ owner, id string }

// kind is one kind of records: where they are, how they are read, and what the
// view does with them. The package comment lists what a new kind needs.
type kind[R any, P interface {
	*R
	record
}] struct {
	dir    string
	prefix string // of ids, which are unique; "": the records have names
	seenAt string // directory of the times of use; "": they are not noted
	secret string // prefix of secrets, for kinds that are found by one
	what   string // Change.Kind; "": changes are not reported

	// in is where the view has the records.
	in func(*records) *collection[P]
	// index is by what a record is found besides its place: the hash of a secret,
	// a code or a name. It may be nil.
	index func(P) digest
	// amend corrects what subscribers get of a change. It may be nil.
	amend func(*records, P, *Change)
	// adopt has next, which is not in the view yet, take over what outlives old,
	// which is nil for a new record. It may be nil.
	adopt func(d *draft, old, next P)
	// removed is called for a record that has left the view. It may be nil.
	removed func(d *draft, old P)

	none R // stands for a record that does not exist
}

// path returns the key in the KV of a record at its place.
func (k *kind[R, P]) path(owner, id string) string {
	if owner == "" {
		return k.dir + id
	}
	return k.span(owner) + id
}

// paths returns the keys in the KV of a record and of the time of its use.
func (k *kind[R, P]) paths(at key) []string {
	if k.seenAt == "" {
		return []string{k.path(at.owner, at.id)}
	}
	return []string{k.path(at.owner, at.id), k.usePath(at)}
}

// usePath returns the key in the KV of the time of use of a record.
func (k *kind[R, P]) usePath(at key) string { return k.seenAt + at.owner + "/" + at.id }

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
	dir, at := splitPath(item.Key)
	if dir != k.dir || at != r.place() || at.id == "" || k.prefix != "" && !checkID(k.prefix, at.id) {
		return nil, damaged(item, "its id is not that of its place")
	}
	if err := r.check(); err != nil {
		return nil, damaged(item, err.Error())
	}
	r.head().revision = item.ModRevision
	return r, nil
}

// apply brings a record into the view, if that has not its revision.
func (k *kind[R, P]) apply(d *draft, at key, item Item) error {
	c := k.in(&d.records)
	old := c.byID.value(k.slot(at))
	if old != nil && old.head().revision == item.ModRevision {
		return nil
	}
	next, err := k.decode(item)
	if err != nil {
		return err
	}
	switch {
	case old != nil:
		next.head().use = old.head().use
		k.unindex(d, c, old)
	case k.seenAt != "":
		next.head().use = &use{path: k.usePath(at)}
	}
	if k.adopt != nil {
		k.adopt(d, old, next)
	}
	c.byID.set(d.edit, k.slot(at), next)
	if k.index != nil {
		c.byHash.set(d.edit, k.index(next), next)
	}
	k.report(d, old, next)
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
	k.report(d, old, nil)
}

// unindex removes a record from the index, unless a later one has the same
// hash: claim codes are short enough for that to happen one day.
func (k *kind[R, P]) unindex(d *draft, c *collection[P], old P) {
	if k.index != nil && c.byHash.value(k.index(old)) == old {
		c.byHash.remove(d.edit, k.index(old))
	}
}

// report notes a change for the subscribers, and counts a record that is new
// (old is nil) or gone (next is nil).
func (k *kind[R, P]) report(d *draft, old, next P) {
	if k.what == "" {
		return
	}
	r, change := next, Change{Kind: k.what, Removed: next == nil}
	if old != nil {
		change.Was = old.state()
	}
	if next == nil {
		r = old
	} else {
		change.State = next.state()
	}
	at := r.place()
	change.Account, change.ID, change.Name = at.owner, at.id, r.label()
	if k.amend != nil {
		k.amend(&d.records, r, &change)
	}
	if change.Kind == "" {
		return
	}
	if change.ID == at.id { // not of a passkey, which is a change of its user
		d.count(change.Account, change.Kind, old == nil, next == nil)
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

func (t timesOf[R, P]) apply(d *draft, at key, item Item) error {
	var r lastUsedRecord
	if err := decode(item, &r); err != nil {
		return err
	}
	used := t.kind.in(&d.records).byID.value(t.kind.slot(at))
	if used != nil && used.place() == at {
		used.head().use.load(r.LastUsedAt)
	}
	return nil
}

// of returns the key in the KV of the record that was used at one of the times.
func (t timesOf[R, P]) of(at key) string { return t.kind.path(at.owner, at.id) }

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
