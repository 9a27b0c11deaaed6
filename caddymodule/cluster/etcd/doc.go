// Package etcd implements store.KV on an etcd cluster of version 3.6 or later, for
// several gateways with one store.
//
// # Layout
//
// All keys are below a prefix, "postern/" by default. Users of the KV see the rest of
// the key. The prefix belongs to one store; other programs can use the same etcd.
//
//	meta/schema     version of this layout, written when the prefix is used first
//	x/txn/RUN/N     slot N of the client that was opened as RUN: see below
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
//   - A watch delivers all changes in order, and a response without the flag "fragment"
//     ends with a complete transaction. The revision in the header of a response with
//     events can be ahead of them. In the header of a progress notification it cannot.
//   - A watch from a revision that was compacted fails.
//
// # Transactions without an answer
//
// A member that is killed does not answer, and its transactions may be committed seconds
// later. The client then tries again, and must not apply the transaction twice. So each
// transaction also compares and puts a slot: a key that only this client writes, and only
// with one transaction at a time.
//
//   - All attempts of a transaction compare the same revision of the slot and change it.
//     At most one of them is ever applied.
//   - An attempt that is answered with a failed compare is the answer if it was the only
//     one. Otherwise the client puts another value into the slot, with the same compare.
//     Afterwards no attempt can be applied, and the value of the slot tells whether one
//     was.
//   - If the context ends first, the outcome stays unknown, and the slot is never used
//     again.
//
// Slots that have not been used for a day are removed when a client is opened. Clients do
// not use their own slots after half a day.
//
// # Waiting
//
// Calls are tried again until their context ends: while etcd elects a leader or is down, a
// call without a deadline waits. Watchers wait, too, and then go on where they were.
package etcd
