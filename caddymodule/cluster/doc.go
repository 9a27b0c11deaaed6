// Package cluster makes several gateways with one store act as one: when one of them has revoked a key,
// none accepts it. A gateway of a cluster is an edge. L is the OnStoreLoss of an edge.
//
// # The rule
//
// An edge accepts requests until L after it sent its last confirmed contact with etcd. Its report in
// etcd has a lease of L and a margin of L/4, at least 5 s. A writer waits until each report shows its
// revision, or is gone. An edge that joins puts its report, then catches up past that put, then serves.
// The contact of contact.go decides whether the edge serves; Cluster.tick in cluster.go ends what runs.
//
// Proof: a writer writes revision R. Then it sees a state of R or later, in which an edge has no report, or
// its report shows R or later. From then on, this edge accepts no request with a state before R:
//
//   - The report shows R or later. An edge reports R only when R has taken effect there.
//   - The edge has no report. If it had one before, the lease of that has ended. The edge sent its last contact before
//     etcd renewed the lease for the last time, so L had ended before, and all requests were ended. If it
//     puts one later, it catches up past that put, and so past R, before it accepts a request.
//
// # Assumptions
//
// etcd ends no lease early, with one exception: a leader that was stopped for longer than the lease, and continues.
// In this case, an edge refuses requests as soon as it sees that its report is gone, and a writer that has seen the
// report waits until L after it.
//
// A report is removed only by its lease, by its own process, or by an operator who knows that the process has
// stopped. A later process with the same locked file counts as the same process. A put of a report compares the record
// of its process, so it fails once the process has left or was replaced.
//
// Clocks need not agree, but the clock of an edge must not be slower than etcd's by more than a fifth. Elapsed
// time is the largest difference of three clocks, as some stand still while a machine is suspended. After a
// gap between two readings of the clocks, an edge refuses requests until its next contact.
package cluster
