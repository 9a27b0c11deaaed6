// Package lab is a network to break, made of namespaces of the Linux kernel:
//
//	gateway  --- WAN ---  router  --- LAN ---  home
//	10.99.N.1       10.99.N.2  192.168.7.1     192.168.7.2
//
// The gateway's namespace is that of the test process. The router masquerades
// home, as the box at the end of a DSL line does; its rules are nftables'. The
// two lines, [Wire], are pumps in the test process between TUN devices: they
// lose, delay and drop what a test says, on kernels without netem too.
//
// In a [Switch], many namespaces are on one network, and a rule decides which packets are lost
// between them.
//
// No namespace has a name. The kernel removes them, with devices and rules, when
// the test process and its children are gone, however they went.
package lab
