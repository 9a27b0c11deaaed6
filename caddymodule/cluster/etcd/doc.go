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
// later. The client then tries again. If a compare of the new attempt fails, the reason may be
// that an earlier one was applied. So the new attempt also reads the compared keys, in the same
// step. Only the keys that the transaction changes count:
//
//   - If one of them was not changed, no attempt was applied. It is a conflict if that stays
//     so: a compare with a revision can never hold again, but one with no key can.
//   - If the first record that it puts has the same bytes and lease, and not the revision that
//     was compared, the transaction was made at that revision. A mark shows nothing, since
//     others put the same bytes.
//   - If it puts no record, and all that it deletes is gone, the deletions are in force. Another
//     client may have made them, at an unknown revision. So the client tries again with
//     compares that the keys do not exist: the revision of the result is then later than the
//     deletions, and is that of the transaction's own marks, which edges confirm.
//   - Otherwise the outcome is unknown, as it is if the context ends first.
//
// An attempt without an answer may be applied even after a later one, as long as its compares
// hold.
//
// # Waiting
//
// Calls are tried again until their context ends: while etcd elects a leader or is down, a
// call without a deadline waits. Watchers wait, too, and then go on where they were.
package etcd
