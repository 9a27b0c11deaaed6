// Package agent runs a connector: it keeps a tunnel up to the gateway, or to each gateway of a
// cluster, reports the upstreams, and passes requests from the tunnel to them. Package link
// implements the protocol, dial the connections, and upstream the access to model servers.
//
//	agent.go          what outlives reloads
//	instance.go       the tunnels of one configuration
//	configuration.go  an instance's configuration
//	takeover.go       a reload: a second instance takes over
//	leg.go            one tunnel after another
//	edges.go          the gateways of a cluster, each with a leg
//	state.go          the states of a leg
//	hello.go          connect, race, handshake
//	maintain.go       an established tunnel, and the search for its successor
//	session.go        one tunnel: requests, control messages, drain
//	heartbeat.go      pings
//	ending.go         why a tunnel ended, and the pause that follows
//	pair.go           pairing a machine with a gateway
//	status.go         the status, with counts of requests
//
// # States
//
//	   ┌────────── lost, refused ◀──────────┐  ┌── welcome of a successor
//	   ▼                                    │  ▼  │
//	waiting ──pause over──▶ connecting ──▶ online ┘
//	   ▲                        │    welcome  │
//	   └─────────failed─────────┘             │ the context ends
//	                                          ▼
//	                                       draining ──▶ stopped
//
// These are the states of each leg. Without a tunnel, or with a final refusal, a leg enters stopped at
// once. A path that is silent ends the tunnel by QUIC's idle timeout. A tunnel over a WebSocket that is up
// gets a successor once QUIC works. The old tunnel then takes no further requests, finishes its own, and is
// closed by the gateway.
//
// # Reloads
//
// An instance runs one configuration. The gateway distinguishes instances by an id. A reload starts a
// second instance in the process, which takes over as another process would:
//
//	the first instance    the second one                        then
//	is online             is online within 30 s                 the first one is drained
//	is online             is refused, or not online in 30 s     it is stopped; the first one has not changed
//	is online             replaced that tunnel, no welcome      the first one ends
//	is not online         –                                     the first one is stopped before it starts
//
// In a cluster, the first one goes on at the edges to which the second one is not connected, for at most 30 s.
//
// # Legs
//
// A single gateway sends no edges, and the instance runs one leg. The edges in the welcome of a cluster start a leg for
// each other edge, within a second. A leg dials its edge until that is not in the list: the edge drains, or was
// removed. A tunnel to such an edge stays until the edge closes it. The first leg also dials the server of the token,
// in case the list is old. Over a WebSocket, or by that server's name, a leg can come to the edge of another leg. So
// the hello lists the edges of the other tunnels, which it must not replace, and one hello at a time awaits its answer.
package agent
