// Package attack tests what a gateway takes of hostile peers: connectors that are
// none, connectors that mean ill, and clients. The gateway is a process of its own,
// as it is shipped. While an attack lasts its memory stays below a bound, clients
// of honest connectors are served over both transports, and new connectors come in.
//
// The attackers have other addresses than the honest, loopback's as well.
package attack
