// Package etcd implements store.KV on an etcd cluster of version 3.6 or later, for
// several gateways with one store. Watches of earlier versions lose changes.
//
// # Layout
//
// All keys are below a prefix, "postern/" by default. Users of the KV see the rest of
// the key. The prefix belongs to one store; other programs can use the same etcd.
//
//	meta/schema     version of this layout; its revision is the epoch
//	meta/…          reserved
//	any other key   an item of the KV
//
// # Guarantees of etcd
//
// The package relies on these properties, which tests/cluster tests:
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
// A member that is killed, frozen or cut off does not answer, and an attempt that it has
// received may be committed seconds later. If another attempt has created the record, and it
// was deleted since, a revoked key is back. So each attempt also compares that meta/schema has the revision
// that the client knows: the epoch. After an attempt without an answer, the client puts meta/schema, and no
// earlier attempt can be committed. Then the history of the first record that the transaction puts shows whether
// one was. If not, the client makes another attempt.
//
// A transaction that puts no record may find its own deletions. So from the second attempt on, keys that it deletes
// need not exist. If its compares fail nevertheless, the outcome is unknown, as it is if the context ends meanwhile.
//
// # Waiting
//
// Calls are tried again until their context ends: while etcd elects a leader or is down, a
// call without a deadline waits. Watchers wait, too, and then continue from the revision that they have reached.
package etcd
