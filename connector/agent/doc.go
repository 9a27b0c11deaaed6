// Package agent runs a connector: it keeps a tunnel up to the gateway, or to two gateways of a
// cluster, reports the upstreams, and passes requests from the tunnel to them. Package link
// implements the protocol, dial the connections, and upstream the access to model servers.
//
//	agent.go          what all tunnels share
//	leg.go            one tunnel after another
//	edges.go          the gateways of a cluster, and the choice of the one to dial
//	state.go          the states of a leg
//	hello.go          connect, race, handshake; clearance to send a hello
//	maintain.go       an established tunnel, and the searches for its successor
//	session.go        one tunnel: requests, control messages, drain
//	heartbeat.go      pings, and detection of silent tunnels
//	configuration.go  an agent's configuration
//	reload.go         replacing the configuration without losing a request
//	rotate.go         replacing the token without losing the tunnel
//	ending.go         why a tunnel ended, and the pause that follows
//	pair.go           pairing a machine with a gateway
//	status.go         the status, with counts of requests
//
// # States
//
//	    ┌──────────────── lost, refused ◀───────────────┐
//	    ▼                                               │
//	waiting ──pause over──▶ connecting ──welcome──▶ online ◀────────┐
//	    ▲                       │                    │  │  ▲        │
//	    └────────failed─────────┘        no pong ────┘  │  │ pong,  │ welcome of
//	    ▲                                   │    drain  │  │ or     │ the successor
//	    │                                   ▼    sent   │  │ welcome│
//	    ├──────────30 s────────────────── silent        └──┼─▶ leaving
//	    │                                 │    ▲           │      │
//	    │                           failed▼    │pause over │      │ no successor
//	    ├──────────30 s─────────────── retrying ───────────┘      │
//	    └─────────────────────────────────────────────────────────┘
//
// These are the states of each leg. When Run's context ends, a leg with a tunnel enters
// draining, and then stopped. A leg without a tunnel, or with a final refusal, enters stopped at
// once. In silent and retrying, the tunnel does not answer, and the leg dials a new connection.
//
// # Legs
//
// A single gateway sends no edges, and the agent has one leg. The edges in the welcome of a
// cluster start another leg a second later. No two legs use the same edge: the hello lists the
// edges of the other tunnels, and only one hello at a time awaits its answer. A leg whose tunnel
// was lost or is silent dials the same gateway three times, then the next edge. The first leg
// also dials the server of the token, so it needs no list. When an edge drains, its leg first
// establishes a tunnel to another edge.
//
// The first leg with a tunnel handles a new configuration. The other legs replace their
// tunnels after its own.
//
// # Hellos
//
// A hello replaces the connector's tunnel. Its purpose decides when it is sent on a new
// connection:
//
//	purpose    the hello is sent                                   the old tunnel
//	first      at once                                             does not exist
//	successor  after the gateway has confirmed the old tunnel's    finishes its requests
//	           drain; without an answer, as a rescue
//	rescue     a moment after the old tunnel fell silent, in       may finish its requests if
//	           case it recovers, or after its end                  it recovers: Hello.KeepSilent
//	newcomer   at once: it is for another connector, gateway or    is drained after the
//	           edge, so it does not replace the old tunnel         welcome
package agent
