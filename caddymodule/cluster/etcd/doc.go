// Package etcd implements store.KV on an etcd cluster of version 3.6 or later, for
// several gateways with one store.
//
// # Layout
//
// All keys are below a prefix, "postern/" by default. Users of the KV see the rest of
// the key. The prefix belongs to one store; other programs can use the same etcd.
//
//	meta/schema     version of this layout, written whenever a client is opened
//	any other key   an item of the KV
//
// # Guarantees of etcd
//
// The package relies on these properties; tests/cluster has tests for them:
//
//   - Transactions and reads are linearizable, and a transaction that was answered is
//     on the disks of a majority.
//   - The ModRevision of a key is the revision of the transaction that changed it last.
//     It never has the same value again, except 0 for a key that does not exist.
//   - A watch delivers all changes in order. The client of etcd joins fragments, so a
//     response ends with a complete transaction. The revision in the header of a response
//     with events can be ahead of them. In a progress notification it cannot: etcd sends
//     one only if all watches of the stream are up to date. Each Watcher has its own stream.
//   - A watch from a revision that was compacted fails.
//
// # Transactions without an answer
//
// A member that is killed does not answer, and its transactions may be committed seconds
// later. The client then tries again. If an attempt finds a compare that does not hold, an
// earlier one may be the reason. That attempt reads the compared keys in the same step:
//
//   - Was a key that the transaction compares and changes not changed, then nor was any
//     other: it is a conflict. If only keys exist that should not, and may be gone when an
//     earlier attempt arrives, the outcome is unknown.
//   - Has the first record that it compares and puts the same bytes and another revision
//     than was compared, the transaction was made at that revision. A mark shows nothing,
//     since others put the same bytes.
//   - Are all keys gone that it compares and deletes, and it puts no such record, the
//     deletions are in force, perhaps by another client, whose revision is unknown. The
//     client tries again with compares for absent keys. So the marks of the transaction
//     change after the deletions, and whoever has the revision of the result has these too.
//   - Otherwise the outcome is unknown. It is unknown, too, if the context ends first.
//
// An attempt that was not answered may even be applied after a later one, as long as its
// compares hold. Transactions without compares must be harmless then.
//
// # Waiting
//
// Calls are tried again until their context ends: while etcd elects a leader or is down, a
// call without a deadline waits. Watchers wait, too, and then go on where they were.
package etcd
