package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// markRestoring exists while RestoreKV writes records. A store with it does not open.
const markRestoring = dirMarks + "restoring"

// isClusterItem reports whether an item is about the gateways that share a store, or belongs to
// one of them. Copies of a store omit these items.
func isClusterItem(path string) bool {
	prefixes := []string{edgeKind.dir, reportKind.dir, markConfirmed}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// CheckUnused fails with ErrLocked if a gateway of a cluster uses the KV.
func CheckUnused(ctx context.Context, kv KV) error {
	reports, err := Range(ctx, kv, Prefix(reportKind.dir))
	if err != nil || len(reports.Items) == 0 {
		return err
	}
	name := strings.TrimPrefix(reports.Items[0].Key, reportKind.dir)
	return Errorf(ErrLocked, "the gateway %.80q is using the store: stop it; if it was killed, its entry in the store "+
		"expires by itself, by default within 2.5 minutes", name)
}

// RestoreKV writes the records of a backup into an empty KV. It fails with ErrExists if the KV
// has records. Until it returns without an error, no gateway opens the store. After an error,
// another call starts again.
func RestoreKV(ctx context.Context, backup string, kv KV) (info BackupInfo, err error) {
	if info, err = CheckBackup(ctx, backup); err != nil {
		return info, err
	}
	db, err := bolt.Open(backup, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return info, explainOpen(backup, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	w := &restore{kv: kv}
	if err = w.begin(ctx); err == nil {
		err = w.write(ctx, db)
	}
	if err != nil {
		return info, fmt.Errorf("restoring the store: %w", err)
	}
	return info, nil
}

// restore writes into a KV as long as no other restore does.
type restore struct {
	kv    KV
	guard Compare // the mark of this restore
	ops   []Op
	size  int // of ops, in bytes
}

// begin sets the mark, with which no gateway opens the KV, and removes the records of a restore
// that was interrupted.
func (r *restore) begin(ctx context.Context) error {
	mark, err := r.kv.Get(ctx, markRestoring)
	if err != nil {
		return err
	}
	var found []string
	errFound := Errorf(ErrExists,
		"the store already has records: stop its gateways and restore into another prefix, or delete its keys")
	_, err = r.kv.Each(ctx, Span{}, func(item Item) error {
		if found = append(found, item.Key); !mark.Exists() {
			return errFound
		}
		return nil
	})
	if err != nil {
		return err
	}
	// A gateway that opens an empty store meanwhile creates the default account.
	unchanged := []Compare{{Key: markRestoring, ModRevision: mark.ModRevision}}
	if !mark.Exists() {
		unchanged = append(unchanged, Compare{Key: accountKind.path("", DefaultAccount)})
	}
	op, err := encode(markRestoring, new(header))
	if err != nil {
		return err
	}
	op.Mark = true
	revision, err := r.commit(ctx, unchanged, op)
	if err != nil {
		return err
	}
	r.guard = Compare{Key: markRestoring, ModRevision: revision}
	for _, key := range found {
		if key == markRestoring {
			continue
		}
		if err := r.add(ctx, Delete(key)); err != nil {
			return err
		}
	}
	return r.flush(ctx)
}

// write writes the records and removes the mark.
func (r *restore) write(ctx context.Context, db *bolt.DB) error {
	err := db.View(func(tx *bolt.Tx) error {
		return eachItem(tx, Span{}, func(item Item) error {
			if isClusterItem(item.Key) {
				return nil
			}
			return r.add(ctx, Put(item.Key, item.Value))
		})
	})
	if err == nil {
		err = r.flush(ctx)
	}
	if err != nil {
		return err
	}
	_, err = r.commit(ctx, []Compare{r.guard}, Delete(markRestoring))
	return err
}

// add queues an operation, and flushes the queue if it is full.
func (r *restore) add(ctx context.Context, op Op) error {
	size := len(op.Key) + len(op.Value)
	if len(r.ops) == MaxTxnOps || r.size+size > MaxTxnBytes {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	r.ops, r.size = append(r.ops, op), r.size+size
	return nil
}

func (r *restore) flush(ctx context.Context) error {
	if len(r.ops) == 0 {
		return nil
	}
	_, err := r.commit(ctx, []Compare{r.guard}, r.ops...)
	r.ops, r.size = nil, 0
	return err
}

// commit commits one transaction and returns its revision.
func (r *restore) commit(ctx context.Context, compares []Compare, ops ...Op) (int64, error) {
	result, err := r.kv.Txn(ctx, Txn{If: compares, Then: ops})
	if err == nil && !result.Succeeded {
		err = Errorf(ErrConflict, "another program has begun to write into the store: stop it, and try again")
	}
	return result.Revision, err
}
