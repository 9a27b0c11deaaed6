package store

import (
	"context"
	"fmt"
	"slices"
)

// maxAttempts bounds how often a write starts anew because others changed
// what it had read.
const maxAttempts = 20

// update runs the transaction that build makes from what it reads in the KV,
// again when a compare does not hold, and waits until the view has it. An
// empty transaction stands for nothing to do.
func (s *Store) update(ctx context.Context, build func() (Txn, error)) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	for range maxAttempts {
		t, err := build()
		if err != nil {
			return err
		}
		result, err := s.kv.Txn(ctx, t)
		if err != nil {
			return err
		}
		if result.Succeeded {
			return s.reach(ctx, result.Revision)
		}
	}
	return fail(ErrConflict, "others kept changing the same records: try again")
}

// unchanged is the compare that holds while item is as it was read.
func unchanged(item Item) Compare {
	return Compare{Key: item.Key, ModRevision: item.ModRevision}
}

// account reads an account for a write that needs it.
func (s *Store) account(ctx context.Context, id string) (Item, error) {
	if !checkAccount(id) {
		return Item{}, fail(ErrNotFound, "there is no account %.40q", id)
	}
	item, err := s.kv.Get(ctx, accountPath(id))
	if err != nil {
		return Item{}, fmt.Errorf("reading the account %q: %w", id, err)
	}
	if !item.Exists() {
		return Item{}, fail(ErrNotFound, "there is no account %q", id)
	}
	return item, nil
}

// unlessStale returns t, or err, unless item has changed since it was read:
// then err may be of a state between two writes, and update has to look again.
func (s *Store) unlessStale(ctx context.Context, item Item, t Txn, err error) (Txn, error) {
	if err == nil {
		return t, nil
	}
	now, getErr := s.kv.Get(ctx, item.Key)
	if getErr == nil && now.ModRevision != item.ModRevision {
		return Txn{If: []Compare{unchanged(item)}}, nil
	}
	return Txn{}, err
}

// put is a record and where it goes.
type put struct {
	path   string
	record any
}

// put returns the transaction with puts of records added.
func (t Txn) put(puts ...put) (Txn, error) {
	for _, p := range puts {
		op, err := encode(p.path, p.record)
		if err != nil {
			return Txn{}, err
		}
		t.Then = append(t.Then, op)
	}
	return t, nil
}

// drop deletes keys, whatever they hold, in as many transactions as it takes.
func (s *Store) drop(ctx context.Context, keys []string) error {
	for chunk := range slices.Chunk(keys, MaxTxnOps) {
		t := Txn{}
		for _, key := range chunk {
			t.Then = append(t.Then, Delete(key))
		}
		if err := s.update(ctx, func() (Txn, error) { return t, nil }); err != nil {
			return err
		}
	}
	return nil
}
