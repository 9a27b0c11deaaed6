package store

import (
	"context"
	"strings"
	"time"
)

// KV is an ordered, revisioned key-value store for one or more processes. Its
// semantics are those of etcd's v3 API, cut down to what Store needs, so that
// etcd itself can stand behind it; storetest.RunKV states them as tests.
//
// The KV has one revision, a positive number. Each transaction that changes
// something makes the next revision, and all changes of a transaction carry
// that same one. An item knows the revision that created it and the revision
// that changed it last. Reads are linearizable: they see every transaction
// that returned before they began.
//
// All methods are safe for concurrent use. After Close they return ErrClosed.
type KV interface {
	// Get returns the item of key. A key that does not exist is not an error: its
	// item has ModRevision 0, which is also what a Compare takes for "does
	// not exist". The value belongs to the caller.
	Get(ctx context.Context, key string) (Item, error)

	// Range returns the items within span in bytewise order of their keys, all
	// of one and the same revision. The values belong to the caller.
	Range(ctx context.Context, span Span) (Snapshot, error)

	// Txn applies all operations of t at once, or, when one of its compares
	// does not hold, none; that is not an error but a TxnResult without
	// Succeeded. When Txn returns without an error, the changes survive the
	// death of the process and of the machine. When it returns an error, they
	// may have been made or not, as always when an answer gets lost.
	//
	// A put with a lease that does not exist fails with ErrNotFound; a
	// transaction against the rules of its type with ErrInvalid.
	Txn(ctx context.Context, t Txn) (TxnResult, error)

	// Watch follows the changes within span, beginning with those of revision
	// from, be they past or future; 0 means the next one. The KV drops
	// old changes at its own choice, at the latest when it is closed; asking
	// for a dropped one, in Watch or in Next, gives ErrCompacted. Changes
	// after the revision of a Snapshot that was just read are never dropped
	// so fast that a prompt watcher would miss them.
	Watch(ctx context.Context, span Span, from int64) (Watcher, error)

	// Lease creates a lease. When it is not kept alive for ttl, it ends, and
	// all items that were last put with it are deleted in one transaction.
	// Leases outlive the process: after a restart of the KV each has its full
	// ttl again. An implementation may round ttl up.
	Lease(ctx context.Context, ttl time.Duration) (Lease, error)

	// Close ends all watchers and releases what the KV holds. Leases stay.
	Close() error
}

// Limits of a KV: those of an etcd with its defaults, or less.
const (
	MaxTxnOps = 128     // operations in one transaction, and as many compares
	MaxKey    = 1 << 10 // bytes
	MaxValue  = 1 << 20 // bytes
)

// Item is a key, its value and its history.
type Item struct {
	Key            string
	Value          []byte
	CreateRevision int64   // of the transaction that created the key
	ModRevision    int64   // of the transaction that changed it last; 0: the key does not exist
	Lease          LeaseID // that the last put named, or 0
}

// Exists reports whether there is such an item.
func (i Item) Exists() bool { return i.ModRevision != 0 }

// Span is the half-open interval of keys [Start, End). An empty End means no
// upper bound, so that the zero Span holds all keys.
type Span struct {
	Start, End string
}

// Prefix is the span of all keys that begin with p.
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

// Txn is a transaction: if all compares hold, do all operations. An operation
// may not name a key that another one names.
type Txn struct {
	If   []Compare
	Then []Op
}

// Compare holds when the item's last change is of just this revision. 0 holds
// when the key does not exist.
type Compare struct {
	Key         string
	ModRevision int64
}

// Op puts or deletes one key. Deleting a key that does not exist changes
// nothing. A put without Lease takes the key off any lease it had.
type Op struct {
	Key    string
	Value  []byte
	Lease  LeaseID
	Delete bool
}

// Put is the operation that sets key to value.
func Put(key string, value []byte) Op { return Op{Key: key, Value: value} }

// Delete is the operation that removes key.
func Delete(key string) Op { return Op{Key: key, Delete: true} }

// TxnResult says what a transaction did.
type TxnResult struct {
	Succeeded bool  // all compares held
	Revision  int64 // after the transaction; its own one if it changed something
}

// Watcher delivers changes in the order of their revisions, each once.
type Watcher interface {
	// Next waits for the next changes. It fails with ErrCompacted when the
	// watcher has fallen too far behind, with ErrClosed when it or the KV
	// was closed, and with the context's error. Only one goroutine may call
	// it at a time. The batch is shared with other watchers: do not change it.
	Next(ctx context.Context) (Batch, error)
	// Close ends the watcher; a Next that waits returns.
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
	// KeepAlive gives the lease its full time again, or fails with
	// ErrNotFound when it has ended.
	KeepAlive(ctx context.Context) error
	// Revoke ends the lease and deletes its items now. Revoking a lease that
	// has ended is not an error.
	Revoke(ctx context.Context) error
}

func (t Txn) check() error {
	if len(t.Then) > MaxTxnOps || len(t.If) > MaxTxnOps {
		return Errorf(ErrInvalid, "the transaction has more than %d operations or compares", MaxTxnOps)
	}
	for _, c := range t.If {
		if err := checkKey(c.Key); err != nil {
			return err
		}
	}
	seen := make(map[string]bool, len(t.Then))
	for _, op := range t.Then {
		if err := checkKey(op.Key); err != nil {
			return err
		}
		if seen[op.Key] {
			return Errorf(ErrInvalid, "the transaction names the key %q twice", op.Key)
		}
		seen[op.Key] = true
		if len(op.Value) > MaxValue {
			return Errorf(ErrInvalid, "the value of %q has more than %d bytes", op.Key, MaxValue)
		}
	}
	return nil
}

func checkKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return Errorf(ErrInvalid, "a key has 1 to %d bytes, not %d", MaxKey, len(key))
	}
	return nil
}
