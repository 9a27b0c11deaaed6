// Package attack tests the gateway against hostile peers: unauthenticated connections, malicious connectors and
// malicious clients. The gateway is a process, as in production. During each attack, its memory stays below a
// bound, clients of honest connectors are served over both transports, and new connectors can connect.
//
// The attackers' addresses differ from those of honest peers. All of them are on loopback.
package attack
