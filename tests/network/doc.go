// Package network has end-to-end tests of tunnels over bad networks. They run the real binaries in Linux network
// namespaces, with a NAT between them and a line that loses, delays and drops packets.
//
// The tests need root, iproute2 and nftables. Without these, the package fails, unless POSTERN_SKIP_NETWORK is 1.
// The tests bind nothing on the machine's own network: the test process starts itself again in a network
// namespace, where the gateway runs, too. See package lab.
package network
