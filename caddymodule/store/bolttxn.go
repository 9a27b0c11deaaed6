package store

import (
	"context"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Txn keeps the writer's lock from the first compare until the watchers have the events,
// so that these are in the order of revisions.
func (b *boltKV) Txn(ctx context.Context, t Txn) (TxnResult, error) {
	if err := t.Check(); err != nil {
		return TxnResult{}, err
	}
	if err := ctx.Err(); err != nil {
		return TxnResult{}, err
	}
	var result TxnResult
	revision, err := b.write(func(w *boltWrite) error {
		for _, c := range t.If {
			item, err := w.get(c.Key)
			if err != nil || item.ModRevision != c.ModRevision {
				return err
			}
		}
		result.Succeeded = true
		for _, op := range t.Then {
			if err := w.do(op); err != nil {
				return err
			}
		}
		result.Changed = len(w.events) > 0
		return nil
	})
	if err != nil {
		return TxnResult{}, err
	}
	result.Revision = revision
	return result, nil
}

// Batch implements [Batcher].
func (b *boltKV) Batch(ctx context.Context, ops []Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := b.write(func(w *boltWrite) error {
		for _, op := range ops {
			if err := w.do(op); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// boltWrite is one write transaction.
type boltWrite struct {
	tx       *bolt.Tx
	revision int64   // of the transaction, if it has events
	events   []Event // for watchers
}

// write runs f in a transaction, commits it and adds it to the history. It returns the
// resulting revision.
func (b *boltKV) write(f func(*boltWrite) error) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, ErrClosed
	}
	revision, err := b.commit(f)
	if err != nil {
		return 0, fmt.Errorf("writing to the store: %w", err)
	}
	return revision, nil
}

func (b *boltKV) commit(f func(*boltWrite) error) (int64, error) {
	tx, err := b.db.Begin(true)
	if err != nil {
		return 0, err
	}
	before := readRevision(tx)
	w := &boltWrite{tx: tx, revision: before + 1}
	err = f(w)
	if err == nil && len(w.events) > 0 {
		err = tx.Bucket(bucketMeta).Put(metaRevision, number(w.revision))
	}
	if err != nil || len(w.events) == 0 {
		return before, errors.Join(err, tx.Rollback())
	}
	if err := b.commitTx(tx); err != nil {
		// The changes may or may not be in the file. Watchers must read the state
		// again.
		revision := before
		readErr := b.db.View(func(tx *bolt.Tx) error {
			revision = readRevision(tx)
			return nil
		})
		b.history.reset(revision)
		return 0, errors.Join(err, readErr)
	}
	b.history.add(Batch{Revision: w.revision, Events: w.events})
	return w.revision, nil
}

func (w *boltWrite) get(key string) (Item, error) {
	return decodeItem(key, w.tx.Bucket(bucketItems).Get([]byte(key)))
}

func (w *boltWrite) do(op Op) error {
	old, err := w.get(op.Key)
	if err != nil {
		return err
	}
	if op.Delete {
		if !old.Exists() {
			return nil
		}
		if err := w.tx.Bucket(bucketItems).Delete([]byte(old.Key)); err != nil {
			return err
		}
		w.events = append(w.events, Event{Item: Item{Key: old.Key, ModRevision: w.revision}, Deleted: true})
		return nil
	}
	if op.Lease != 0 {
		return Errorf(ErrNotFound, "lease %d not found: the store is that of one gateway", op.Lease)
	}
	item := Item{
		Key: op.Key, Value: append([]byte{}, op.Value...), CreateRevision: old.CreateRevision, ModRevision: w.revision,
	}
	if !old.Exists() {
		item.CreateRevision = w.revision
	}
	if err := w.tx.Bucket(bucketItems).Put([]byte(item.Key), encodeItem(item)); err != nil {
		return err
	}
	w.events = append(w.events, Event{Item: item})
	return nil
}
