// Package cluster has the slow end-to-end tests of a cluster: three edges, three members of
// etcd and a home with connectors, each on a machine of its own, which is a namespace of the
// Linux kernel. A switch between them loses what a test says.
//
// Package tests/cluster, where lines do not matter, has the other tests of a cluster. Times are
// printed; only what takes seconds by design has a bound, far above that.
//
// The tests need what those in tests/network need.
package cluster
