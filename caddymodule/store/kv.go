package store

import (
	"context"
	"io"
	"strings"
	"time"
)

// KV is an ordered, revisioned key-value store for one or more processes. Its semantics
// are the subset of etcd's v3 API that Store needs, so that etcd can implement it;
// storetest.RunKV tests them.
//
// The KV has one revision, a positive number. It grows with each transaction that changes
// something, and all changes of a transaction have the new revision. It may skip numbers:
// an engine that others use counts their transactions too. An item records the revisions
// of its creation and of its last change. Reads are linearizable: they see every
// transaction that returned before they began.
//
// All methods are safe for concurrent use. After Close they return ErrClosed.
type KV interface {
	// Get returns the item of key. If the key does not exist, it returns an item with
	// ModRevision 0 and no error. The value belongs to the caller.
	Get(ctx context.Context, key string) (Item, error)

	// Each calls f with the items within span in bytewise order of their keys, all as of
	// the revision that it returns. The values belong to the caller. f must not use the
	// KV; its error ends Each, which returns it.
	Each(ctx context.Context, span Span, f func(Item) error) (revision int64, err error)

	// Txn atomically applies all operations of t. If one of its compares fails, it
	// applies none and returns a TxnResult without Succeeded, but no error. When Txn
	// returns without an error, the changes survive a crash of the process and of the
	// machine. After an error, they may or may not have been made, or may be made later.
	// Changes may be made twice if they are of items that are not compared.
	//
	// If two transactions put the same first record, both may succeed although only one was
	// applied, unless all their puts are marks. Keys that a transaction without a record deletes
	// may be missing although it has compared them.
	//
	// A put with an unknown lease fails with ErrNotFound, as does each put with a lease if
	// the KV is not a Leaser. An invalid transaction fails with ErrInvalid.
	Txn(ctx context.Context, t Txn) (TxnResult, error)

	// Watch follows the changes within span from revision from on, past or future; 0
	// means the next one. The KV may drop old changes at any time, at the latest when
	// it is closed. Watch and Next fail with ErrCompacted for dropped changes. Changes
	// after a recent Snapshot are kept long enough for a prompt watcher.
	Watch(ctx context.Context, span Span, from int64) (Watcher, error)

	// Backup writes all items of one revision to w, as a file that OpenBolt opens. It
	// does not wait for writers, and they do not wait for it.
	Backup(ctx context.Context, w io.Writer) error

	// Close ends all watchers and releases all resources. Leases are kept.
	Close() error
}

// Leaser is implemented by a KV that several gateways share.
type Leaser interface {
	// Lease creates a lease. If it is not kept alive for ttl, it ends, and all items
	// last put with it are deleted in one transaction. Leases survive a restart of the
	// process, with their full ttl. An implementation may round ttl up.
	Lease(ctx context.Context, ttl time.Duration) (Lease, error)
}

// Compacter is implemented by a KV that keeps old changes until Compact drops them.
type Compacter interface {
	// Compact drops the changes before revision.
	Compact(ctx context.Context, revision int64) error
}

// Limits of a KV: those of an etcd with its defaults, or less.
const (
	MaxTxnOps   = 120         // operations in one transaction, and as many compares
	MaxTxnBytes = 5 << 20 / 4 // bytes of the keys and values in one transaction
	MaxKey      = 1 << 10     // bytes
	MaxValue    = 1 << 20     // bytes
)

// Item is a key, its value and its history.
type Item struct {
	Key            string
	Value          []byte
	CreateRevision int64 // of the transaction that created the key
	ModRevision    int64 // of the transaction that changed it last; 0: the key does not exist
}

// Exists reports whether the item exists.
func (i Item) Exists() bool { return i.ModRevision != 0 }

// Span is the half-open interval of keys [Start, End). An empty End means no
// upper bound, so that the zero Span holds all keys.
type Span struct {
	Start, End string
}

// Prefix returns the span of all keys that begin with p.
func Prefix(p string) Span {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] < 0xff {
			return Span{Start: p, End: p[:i] + string([]byte{p[i] + 1})}
		}
	}
	return Span{Start: p}
}

// Contains reports whether key lies within the span.
func (s Span) Contains(key string) bool {
	return key >= s.Start && (s.End == "" || strings.Compare(key, s.End) < 0)
}

// Snapshot is the state of a span at one revision.
type Snapshot struct {
	Revision int64 // of the whole KV, not only of the span
	Items    []Item
}

// Range returns the items of a small span.
func Range(ctx context.Context, kv KV, span Span) (snap Snapshot, err error) {
	snap.Revision, err = kv.Each(ctx, span, func(item Item) error {
		snap.Items = append(snap.Items, item)
		return nil
	})
	return snap, err
}

// Txn is a transaction: if all compares hold, all operations are applied. Each key may be
// used by only one operation.
type Txn struct {
	If   []Compare
	Then []Op
}

// Compare holds if the item's last change has this revision. 0 holds if the key does not
// exist.
type Compare struct {
	Key         string
	ModRevision int64
}

// Op puts or deletes one key. Deleting a key that does not exist changes nothing. A put
// without Lease detaches the key from its lease.
type Op struct {
	Key    string
	Value  []byte
	Lease  LeaseID
	Delete bool
	// Mark is set if other writers put the same value: its presence in the KV does not show
	// that this transaction was applied.
	Mark bool
}

// Put returns the operation that sets key to value.
func Put(key string, value []byte) Op { return Op{Key: key, Value: value} }

// Delete returns the operation that removes key.
func Delete(key string) Op { return Op{Key: key, Delete: true} }

// TxnResult is the result of a transaction.
type TxnResult struct {
	Succeeded bool  // all compares held
	Changed   bool  // it made changes; false if it only deleted keys that did not exist
	Revision  int64 // of the transaction if it made changes, otherwise of the KV afterwards
}

// Watcher delivers changes in the order of their revisions, each once.
type Watcher interface {
	// Next waits for the next changes. It fails with ErrCompacted if the watcher has
	// fallen too far behind, with ErrClosed if it or the KV was closed, or with the
	// context's error. Only one goroutine may call it at a time. The batch is shared
	// with other watchers and must not be changed.
	Next(ctx context.Context) (Batch, error)
	// Progress returns the revision of the KV, and makes Next return a batch up to that
	// revision or later, possibly without events, unless it has done so. Another
	// goroutine may call Next meanwhile.
	Progress(ctx context.Context) (revision int64, err error)
	// Close ends the watcher and makes a waiting Next return.
	Close()
}

// Batch is one or more complete transactions, as far as they touch the span.
type Batch struct {
	Revision int64 // all changes up to this one have been delivered
	Events   []Event
}

// Event is the change of one key. Of a deleted item only Key and ModRevision,
// the revision of the deletion, are set.
type Event struct {
	Item    Item
	Deleted bool
}

// LeaseID names a lease; it is positive.
type LeaseID int64

// Lease is a lease that this process created.
type Lease interface {
	ID() LeaseID
	// KeepAlive restores the full ttl of the lease. It fails with ErrNotFound if the
	// lease has ended.
	KeepAlive(ctx context.Context) error
	// Revoke ends the lease and deletes its items now. Revoking an ended lease is not
	// an error.
	Revoke(ctx context.Context) error
}

// Check fails with ErrInvalid if t exceeds a limit or uses a key twice.
func (t Txn) Check() error {
	if len(t.Then) > MaxTxnOps || len(t.If) > MaxTxnOps {
		return Errorf(ErrInvalid, "the transaction has more than %d operations or compares", MaxTxnOps)
	}
	for _, c := range t.If {
		if err := CheckKey(c.Key); err != nil {
			return err
		}
	}
	seen, size := make(map[string]bool, len(t.Then)), 0
	for _, op := range t.Then {
		if err := CheckKey(op.Key); err != nil {
			return err
		}
		if seen[op.Key] {
			return Errorf(ErrInvalid, "the transaction names the key %q twice", op.Key)
		}
		seen[op.Key] = true
		if len(op.Value) > MaxValue {
			return Errorf(ErrInvalid, "the value of %q has more than %d bytes", op.Key, MaxValue)
		}
		if size += len(op.Key) + len(op.Value); size > MaxTxnBytes {
			return Errorf(ErrInvalid, "the transaction has more than %d bytes", MaxTxnBytes)
		}
	}
	return nil
}

// CheckKey fails with ErrInvalid if key is empty or too long.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return Errorf(ErrInvalid, "a key has 1 to %d bytes, not %d", MaxKey, len(key))
	}
	return nil
}
