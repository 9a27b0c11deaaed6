// Package cluster makes several gateways with one store act as one: what one of them revokes,
// none accepts. A gateway of a cluster is an edge.
//
// # Reports
//
// An edge has a record in the store, and a report with a lease of 15 s. It renews the lease
// every 2 s, after it has caught up with the changes of the others: that is its contact to
// the store. It accepts requests for 10 s after the beginning of its last contact.
//
// A write that must be in force everywhere, such as a revocation, also changes a mark. Edges
// that apply this change, and have cut the requests that it ends, report its revision. The
// writer waits for the reports of all edges, its own included (Confirm). An edge that stops
// removes its record when it has refused its last request.
//
// # Lost edges
//
// The report of an edge without contact ends. Unless its OnStoreLoss is positive, it has refused
// all requests since 5 s before or longer, and counts as confirmed.
//
// With OnStoreLoss it goes on for up to that time since its last contact while most of its
// electorate, including itself, are without contact: then the store is down, and not this edge.
// The electorate are the edges in its record, by their instances: a database of an edge, whatever
// its name. It asks them again and again; an answer counts for 2 s after it was asked for. Without a majority for a moment, it has stopped for good. An edge
// that has answered that it has no contact does not report during the next 3 s, and its next
// report has another Contact.
//
// A writer treats an edge without a report as silent if it can prove that, and otherwise waits
// for OnStoreLoss. The proof:
//
//  1. The writer takes the reports of at least half of the lost edge's electorate, and then
//     changes the mark. Call this moment T.
//  2. All of these report the change, with the same Contact as before. So each of them had
//     contact at T, and no answer to the contrary counted at T.
//  3. So the lost edge had no majority at T. It did not have contact since 10 s before T
//     either, as its lease of 15 s had ended. It has stopped at T, or before.
//
// While an edge changes its electorate, it does not know which one a writer sees. Until it has
// an answer it relies on contact alone.
//
// # Lent time
//
// An edge that has started from a copy of the store, without contact, or that has stopped, may
// use the time of a peer. A peer without contact says how long it accepts requests at least, 2 s
// at most, and which change of the mark it has applied last. If this edge has applied that, too,
// it accepts requests for this time since it asked. That is safe because the peer stands for
// it: as long as the peer accepts requests, it has reported all changes that are confirmed, and
// it reports no later one in the 3 s after its answer. It waits as long before it changes or
// removes its record.
//
// A process that starts may follow one that has just given such an answer, so it waits, too. It
// does not replace the record of another instance that has its name and may still serve.
//
// # Clocks
//
// Only the rates of clocks matter. They may differ by a third, and by 10 s in OnStoreLoss. The clock
// of a suspended machine may stand still: it can then accept requests for up to 10 s after it
// resumes.
package cluster
