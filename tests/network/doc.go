// Package network holds the end-to-end tests of tunnels over bad networks: the
// real binaries in Linux network namespaces, with a NAT between them and a line
// that loses, delays and cuts.
//
// The tests need root, iproute2 and nftables; without them the package fails
// unless POSTERN_SKIP_NETWORK is 1. They bind nothing on the machine's own
// network: the test process starts itself again in a namespace of its own, in
// which the gateway runs too. See package lab.
package network
