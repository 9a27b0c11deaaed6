package store

import (
	"context"
	"fmt"
	"slices"
)

// maxAttempts bounds the attempts of a write that conflicts with other writes.
const maxAttempts = 20

// tx is a write that is being built: its puts and deletes, and the items that it has read, which
// must not change until it is committed. It keeps the first error of reading or encoding, so
// that only write has to check it.
type tx struct {
	Txn
	ctx context.Context
	s   *Store
	err error

	confirm bool // see confirmed
}

// update commits the write built by build and waits until the view shows it. It returns the
// result of build if the write was committed, see Committed. It retries on conflict. A write that
// changes nothing waits until the view shows the items that build has read. Errors begin with
// doing.
func update[T any](ctx context.Context, s *Store, doing string, build func(t *tx) (T, error)) (T, error) {
	var result T
	err := s.update(ctx, doing, func(t *tx) (err error) {
		result, err = build(t)
		return err
	})
	if !Committed(err) {
		var none T
		return none, err
	}
	return result, err
}

// update is the function update for a write without a result.
func (s *Store) update(ctx context.Context, doing string, build func(t *tx) error) error {
	if err := s.write(ctx, build); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

func (s *Store) write(caller context.Context, build func(t *tx) error) error {
	ctx, cancel := s.withSharedTimeout(caller)
	defer cancel()
	for range maxAttempts {
		if s.closed.Load() {
			return ErrClosed
		}
		t := &tx{ctx: ctx, s: s}
		failed := build(t)
		if t.err != nil {
			return t.err
		}
		if failed != nil {
			t.Then = nil // only check that no concurrent write has caused the error
		}
		result, err := s.shared.Txn(ctx, t.Txn)
		switch {
		case failed != nil && (err != nil || result.Succeeded):
			return failed
		case err != nil:
			return err
		case result.Succeeded && result.Changed && t.watched():
			if err := s.Reach(ctx, result.Revision); err != nil || !t.confirm {
				return err
			}
			return s.cluster.Confirm(caller, result.Revision)
		case result.Succeeded && s.Revision() >= result.Revision:
			return s.Reach(ctx, result.Revision)
		case result.Succeeded:
			return s.CatchUp(ctx)
		}
	}
	return Errorf(ErrConflict, "too many concurrent changes of the same records: try again")
}

// watched reports whether all changes of the write are watched.
func (t *tx) watched() bool {
	return !slices.ContainsFunc(t.Then, func(op Op) bool { return !watched.Contains(op.Key) })
}

// get reads an item, which need not exist.
func (t *tx) get(path string) Item {
	if t.err != nil {
		return Item{}
	}
	var item Item
	if item, t.err = t.s.shared.Get(t.ctx, path); t.err != nil {
		return Item{}
	}
	t.If = append(t.If, Compare{Key: path, ModRevision: item.ModRevision})
	return item
}

// read reads the record of a path into r, and reports whether there is one.
func (t *tx) read(path string, r interface{ head() *header }) bool {
	item := t.get(path)
	if !item.Exists() {
		return false
	}
	t.err = decode(item, r)
	return t.err == nil
}

// items reads the items with a prefix. They may change until the write is committed.
func (t *tx) items(prefix string) []Item {
	if t.err != nil {
		return nil
	}
	snap, err := Range(t.ctx, t.s.shared, Prefix(prefix))
	t.err = err
	return snap.Items
}

func (t *tx) put(path string, r interface{ head() *header }) {
	op, err := encode(path, r)
	if err != nil && t.err == nil {
		t.err = err
	}
	t.Then = append(t.Then, op)
}

// mark changes a mark.
func (t *tx) mark(path string) {
	t.put(path, new(header))
	t.Then[len(t.Then)-1].Mark = true
}

func (t *tx) delete(paths ...string) {
	for _, path := range paths {
		t.Then = append(t.Then, Delete(path))
	}
}

// account returns the account with this id, or fails with ErrNotFound.
func (t *tx) account(id string) (*accountRecord, error) {
	r := accountKind.load(t, "", id)
	if r == nil {
		return nil, errNoAccount(id)
	}
	return r, nil
}

// load reads a record. It returns nil if the record does not exist.
func (k *kind[R, P]) load(t *tx, owner, id string) P {
	path := k.path(owner, id)
	valid := id != "" && len(path) <= MaxKey && (owner == "" || checkAccount(owner)) &&
		(k.prefix == "" || checkID(k.prefix, id))
	if t.err != nil || !valid {
		return nil
	}
	item := t.get(path)
	if !item.Exists() {
		return nil
	}
	var r P
	if r, t.err = k.decode(item); t.err != nil {
		return nil
	}
	return r
}

// save puts a record.
func (k *kind[R, P]) save(t *tx, r P) {
	key := r.key()
	t.put(k.path(key.owner, key.id), r)
}

// create is save for a record with a new id.
func (k *kind[R, P]) create(t *tx, r P) {
	key := r.key()
	t.If = append(t.If, Compare{Key: k.path(key.owner, key.id)})
	k.save(t, r)
}

// add is create for a record that counts towards the limits of its account.
func (k *kind[R, P]) add(t *tx, r P) error {
	account := r.key().owner
	if _, err := t.account(account); err != nil {
		return err
	}
	if err := t.s.checkLimit(account, k); err != nil {
		return err
	}
	k.create(t, r)
	t.mark(markAccount(account))
	return nil
}

// remove deletes a record and the time of its use.
func (k *kind[R, P]) remove(t *tx, owner, id string) { t.delete(k.paths(recordKey{owner, id})...) }

// loadAll reads the records of an owner from the KV. They may change until the write is
// committed; read a mark first to detect that.
func (k *kind[R, P]) loadAll(t *tx, owner string) []P {
	var all []P
	for _, item := range t.items(k.span(owner)) {
		var r P
		if r, t.err = k.decode(item); t.err != nil {
			return nil
		}
		all = append(all, r)
	}
	return all
}

// removeRecord removes a record, and the KV keys in also, and returns the record. All edges
// confirm that. It fails with unknown if the record does not exist.
func (k *kind[R, P]) removeRecord(ctx context.Context, s *Store, doing, owner, id string, unknown error,
	also ...string,
) (P, error) {
	return update(ctx, s, doing, func(t *tx) (P, error) {
		r := k.load(t, owner, id)
		if r == nil {
			return nil, unknown
		}
		k.remove(t, owner, id)
		t.delete(also...)
		t.confirmed()
		return r, nil
	})
}

// deleteSpans deletes all KV keys in spans.
func (s *Store) deleteSpans(ctx context.Context, spans ...Span) error {
	var paths []string
	for _, span := range spans {
		_, err := s.shared.Each(ctx, span, func(item Item) error {
			paths = append(paths, item.Key)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return s.deleteAll(ctx, paths, nil)
}

// deleteAll deletes KV keys in as many writes as necessary, and calls also for each write. A
// confirmation of the last write confirms all.
func (s *Store) deleteAll(ctx context.Context, keys []string, also func(*tx)) (err error) {
	for chunk := range slices.Chunk(keys, MaxTxnOps-1) {
		err = s.write(ctx, func(t *tx) error {
			t.delete(chunk...)
			if also != nil {
				also(t)
			}
			return nil
		})
		if !Committed(err) {
			return err
		}
	}
	return err
}
