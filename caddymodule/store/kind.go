package store

import (
	"cmp"
	"encoding/json"
	"fmt"

	fastjson "github.com/go-json-experiment/json"
	fastjsonv1 "github.com/go-json-experiment/json/v1"
)

// recordVersion is the version of all records that this program writes. Increase it for
// a change that older programs would misread, but not for a field that they may ignore.
const recordVersion = 1

// header is embedded in all records. The version is checked before the rest is decoded.
type header struct {
	V int `json:"v"`

	// In the view only:
	revision int64 // of the record's last change
	use      *use  // when it was last used, for kinds with seenAt
	read     *edit // of the draft that has read it from the KV last
}

func (h *header) head() *header { return h }

// Defaults for records without a name, a state, a check or an end.
func (h *header) label() string     { return "" }
func (h *header) state() string     { return "" }
func (h *header) check() error      { return nil }
func (h *header) ended(*sweep) bool { return false }

// record is implemented by the records of a kind.
type record interface {
	head() *header
	key() recordKey
	label() string     // Change.Name
	state() string     // Change.State
	check() error      // why the record is invalid
	ended(*sweep) bool // whether the sweeper removes the record
}

// recordKey identifies a record within its kind: by the account or user that it belongs to,
// and its id or name.
type recordKey struct{ owner, id string }

// anyKind is implemented by kinds of all types. See the methods of kind.
type anyKind interface {
	dirs() (records, uses string)
	apply(d *draft, dir string, key recordKey, item Item) error
	drop(d *draft, dir string, key recordKey)
	dropMissing(d *draft, old *records)
	count(v *view, owner string) int
	remain() bool
	sweep(w *sweep)
}

// kind describes one kind of records: where they are stored, how they are read, and how
// the view handles them. The package comment lists what a new kind needs.
type kind[R any, P interface {
	*R
	record
}] struct {
	dir    string
	prefix string // of ids, which are unique; "": the records have names
	seenAt string // directory of the times of use; "": not recorded
	secret string // prefix of secrets, for kinds that are found by secret
	what   string // Change.Kind; "": changes are not reported
	// remains is set if an account can be removed while it has such records.
	remains bool

	// collection returns the records of the kind in a view.
	collection func(*records) *collection[P]
	// index returns an additional key of a record: the hash of a secret, a code or
	// a name. It may be nil.
	index func(P) digest
	// former returns another such key, the zero digest for none. It may be nil.
	former func(P) digest
	// nameOf returns the path of the record of a record's name, "" for none. It may be nil.
	nameOf func(P) string
	// amend adjusts a change before subscribers get it. It may be nil.
	amend func(*records, P, *Change)
	// adopt moves long-lived state from old to next before next enters the view. old
	// is nil for a new record. It may be nil.
	adopt func(d *draft, old, next P)
	// removed is called for a record that has left the view. It may be nil.
	removed func(d *draft, old P)

	none R // returned for a record that does not exist
}

func (k *kind[R, P]) dirs() (records, uses string) { return k.dir, k.seenAt }

func (k *kind[R, P]) remain() bool { return k.remains }

// path returns the KV key of a record.
func (k *kind[R, P]) path(owner, id string) string {
	if owner == "" {
		return k.dir + id
	}
	return k.span(owner) + id
}

// paths returns the KV keys of a record and of its time of use.
func (k *kind[R, P]) paths(key recordKey) []string {
	if k.seenAt == "" {
		return []string{k.path(key.owner, key.id)}
	}
	return []string{k.path(key.owner, key.id), k.usePath(key)}
}

// pathsOf returns the KV keys of a record, of its time of use and of its name.
func (k *kind[R, P]) pathsOf(r P) []string {
	paths := k.paths(r.key())
	if k.nameOf != nil && k.nameOf(r) != "" {
		paths = append(paths, k.nameOf(r))
	}
	return paths
}

// usePath returns the KV key of a record's time of use.
func (k *kind[R, P]) usePath(key recordKey) string { return k.seenAt + key.owner + "/" + key.id }

// span returns the common prefix of the KV keys of an owner's records.
func (k *kind[R, P]) span(owner string) string { return k.dir + owner + "/" }

// decode decodes a record. It checks the record, and that it belongs to its KV key.
func (k *kind[R, P]) decode(item Item) (P, error) {
	r := P(new(R))
	if err := decode(item, r); err != nil {
		return nil, err
	}
	dir, key := splitPath(item.Key)
	if dir != k.dir || key != r.key() || key.id == "" || k.prefix != "" && !checkID(k.prefix, key.id) {
		return nil, damaged(item, "its id does not match its key")
	}
	if err := r.check(); err != nil {
		return nil, damaged(item, err.Error())
	}
	r.head().revision = item.ModRevision
	return r, nil
}

// apply adds or updates a record in the view, unless the view already has its revision, or
// sets its time of use. Times of use sort after their records, which are therefore loaded
// first.
func (k *kind[R, P]) apply(d *draft, dir string, key recordKey, item Item) error {
	old, _ := k.get(&d.records, key)
	if dir == k.seenAt {
		var used lastUsedRecord
		if err := decode(item, &used); err != nil {
			return err
		}
		if old == nil || old.key() != key {
			d.orphans.set(d.edit, item.Key, item.ModRevision)
			return nil
		}
		if old.head().use.load(used.LastUsedAt); used.Tunnel != nil {
			old.head().use.tunnel.Store(used.Tunnel)
		}
		return nil
	}
	if old != nil && old.head().revision == item.ModRevision {
		old.head().read = d.edit
		return nil
	}
	next, err := k.decode(item)
	if err != nil {
		return err
	}
	next.head().read = d.edit
	switch {
	case old != nil:
		next.head().use = old.head().use
		k.unindex(d, old)
	case k.seenAt != "":
		next.head().use = &use{path: k.usePath(key)}
	}
	if k.adopt != nil {
		k.adopt(d, old, next)
	}
	k.insert(d, next)
	k.report(d, old, next)
	return nil
}

// drop removes a record from the view. A time of use stays with its record.
func (k *kind[R, P]) drop(d *draft, dir string, key recordKey) {
	old, _ := k.get(&d.records, key)
	if dir == k.seenAt || old == nil || old.key() != key {
		return
	}
	k.unindex(d, old)
	if k.removed != nil {
		k.removed(d, old)
	}
	k.report(d, old, nil)
}

// dropMissing removes the records of old that a draft of all records has not read.
func (k *kind[R, P]) dropMissing(d *draft, old *records) {
	for r := range k.all(old) {
		if now, ok := k.get(&d.records, r.key()); ok && now.head().read != d.edit {
			k.drop(d, k.dir, r.key())
		}
	}
}

// insert adds a record to the collection.
func (k *kind[R, P]) insert(d *draft, next P) {
	c, key := k.collection(&d.records), next.key()
	owned := c.byOwner.value(key.owner)
	owned.set(d.edit, key.id, next)
	c.byOwner.set(d.edit, key.owner, owned)
	if k.prefix != "" {
		c.byID.set(d.edit, key.id, next)
	}
	for _, hash := range k.hashes(next) {
		if hash != (digest{}) {
			c.byHash.set(d.edit, hash, next)
		}
	}
}

// unindex removes a record from the collection. A later record may have the same hash, which
// is possible for pairing codes.
func (k *kind[R, P]) unindex(d *draft, old P) {
	c, key := k.collection(&d.records), old.key()
	owned := c.byOwner.value(key.owner)
	if owned.remove(d.edit, key.id); owned.size > 0 {
		c.byOwner.set(d.edit, key.owner, owned)
	} else {
		c.byOwner.remove(d.edit, key.owner)
	}
	if k.prefix != "" {
		c.byID.remove(d.edit, key.id)
	}
	for _, hash := range k.hashes(old) {
		if hash != (digest{}) && c.byHash.value(hash) == old {
			c.byHash.remove(d.edit, hash)
		}
	}
}

// hashes returns the additional keys of a record, the zero digest for each that it lacks.
func (k *kind[R, P]) hashes(r P) (hashes [2]digest) {
	if k.index != nil {
		hashes[0] = k.index(r)
	}
	if k.former != nil {
		hashes[1] = k.former(r)
	}
	return hashes
}

// report queues a change for the subscribers. old is nil for a new record, next for a removed
// one.
func (k *kind[R, P]) report(d *draft, old, next P) {
	if k.what == "" || d.first {
		return
	}
	r := cmp.Or(next, old)
	key := r.key()
	change := Change{
		Kind: k.what, Account: key.owner, ID: key.id, Name: r.label(), Removed: next == nil,
		Revision: r.head().revision,
	}
	if old != nil {
		change.Was = old.state()
	}
	if next != nil {
		change.State = next.state()
	}
	if k.amend != nil {
		k.amend(&d.records, r, &change)
	}
	if change.Kind != "" {
		d.changes = append(d.changes, change)
	}
}

// sweep adds the records to remove.
func (k *kind[R, P]) sweep(w *sweep) {
	for r := range k.all(&w.view.records) {
		if r.ended(w) {
			w.remove(r.head().revision, k.pathsOf(r)...)
		}
	}
}

var ofAnyLength = fastjsonv1.UnmarshalArrayFromAnyLength(true) // as of a [Histogram]

// decode decodes a record and checks that this program supports its version. Errors never
// include values, which may be secret. The fast decoder is for the start of a gateway with
// very many records. It is stricter, so the usual decoder reads what it refuses.
func decode(item Item, record interface{ head() *header }) error {
	if fastjson.Unmarshal(item.Value, record, ofAnyLength) == nil && record.head().V == recordVersion {
		return nil
	}
	var h header // first: a record of another version may have other fields
	if err := json.Unmarshal(item.Value, &h); err != nil {
		return Errorf(ErrSchema, "the record %s is damaged: %v", item.Key, err)
	}
	switch {
	case h.V > recordVersion:
		return Errorf(ErrSchema, "the record %s has version %d, but this program supports only %d: "+
			"it was written by a newer Postern, so run that version", item.Key, h.V, recordVersion)
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

// encode returns the operation that puts a record, with the current version.
func encode(path string, record interface{ head() *header }) (Op, error) {
	record.head().V = recordVersion
	value, err := json.Marshal(record)
	if err != nil {
		return Op{}, fmt.Errorf("encoding the record %s: %w", path, err)
	}
	return Put(path, value), nil
}
