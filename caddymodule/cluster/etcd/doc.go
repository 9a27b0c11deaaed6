// Package etcd implements store.KV on an etcd cluster of version 3.6 or later, for
// several gateways with one store.
//
// # Layout
//
// All keys are below a prefix, "postern/" by default. Users of the KV see the rest of
// the key. The prefix belongs to one store; other programs can use the same etcd.
//
//	meta/schema     version of this layout, written whenever a client is opened
//	meta/epoch      empty; put after a transaction without an answer, missing until then
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
// A member that is killed, frozen or cut off does not answer, and an attempt that it has
// received may be committed much later, when all compares hold again. So each attempt also
// compares that meta/epoch has the revision that the client knows. After one without an answer,
// the client puts meta/epoch: from then on no earlier attempt can be committed. A member without a leader
// refuses an attempt before it does anything, so the next one needs no new epoch. The transaction that puts
// meta/epoch reads the compared keys. The keys that the transaction changes show whether the attempt was committed:
//
//   - If such a key exists and was not changed since the attempt began, it was not committed.
//   - Otherwise, if the first record that it puts has the same bytes and lease, it was committed at
//     the revision of that record. A mark shows nothing, since other transactions put the same bytes.
//   - If that record did not exist before and does not exist now, the history of its key shows whether
//     it was created and deleted meanwhile. If not, the attempt was not committed.
//   - If it puts no record, another attempt is harmless. Of the keys that it deletes, some may no longer
//     exist: the next attempt compares that they do not exist. The revision of its result is later than
//     the deletions. It is the revision of the transaction's own marks, which edges confirm. If a
//     compare fails, the outcome is unknown.
//   - Otherwise the outcome is unknown, as it is if the context ends before meta/epoch is put.
//
// If the attempt was not committed, the client makes another one. So a transaction that compares the
// first record that it puts is committed at most once, and a conflict means that it was not committed. A
// transaction that compares none of the keys that it changes may be committed twice. No attempt is
// committed after Txn has returned, unless the outcome is unknown because meta/epoch was not put.
//
// If another client has put meta/epoch, an attempt changes nothing, and returns the new revision
// of meta/epoch for the next attempt. Clients cannot delay each other forever, as they put meta/epoch
// only after transactions without an answer. A late put of meta/epoch is harmless.
//
// # Waiting
//
// Calls are tried again until their context ends: while etcd elects a leader or is down, a
// call without a deadline waits. Watchers wait, too, and then continue from the revision that they have reached.
package etcd
