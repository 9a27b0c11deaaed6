// Package cluster makes several gateways with one store act as one: what one of them revokes, none
// accepts. A gateway of a cluster is an edge. L is its OnStoreLoss.
//
// # The rule
//
// An edge accepts requests until L after it sent its last confirmed contact with etcd. Its report in
// etcd has a lease of L and a margin of L/4, at least 5 s. A writer waits until each report shows its
// revision, or is gone. An edge that joins puts its report, then catches up past that put, then serves.
//
// Proof: let an edge accept a request with the state before a write of revision R, after the writer has
// seen a state of R or later in which the edge has no report, or one of R or later.
//
//   - The report shows R. An edge reports R only when R has taken effect there.
//   - It has no report. If it had one before, its lease has ended. The edge sent its last contact before
//     etcd renewed the lease for the last time, so L had ended before, and all requests were cut. If it
//     puts one later, it catches up past that, and so past R, before it accepts anything.
//
// # What it rests on
//
// etcd ends no lease early. A leader that was stopped for longer than the lease can do so when it goes on. Then
// edges that see their report vanish refuse at once, and a writer that has seen the report waits until L after it.
//
// Only the lease, its own process, or an operator who knows that it has stopped removes a report; a
// later process with the same locked file counts as its own. A put of a report names the record of its
// process, so it fails once that has left or was replaced.
//
// Rates of clocks matter, not their times: that of an edge may be slower than etcd's by a fifth. Elapsed
// time is the largest difference of three clocks, as some stand still in a suspended machine. After a
// gap between two looks at them, an edge refuses until its next contact.
package cluster
