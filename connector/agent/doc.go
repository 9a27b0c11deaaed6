// Package agent runs a connector: it keeps a tunnel to the gateway up, or to two gateways of a
// cluster, reports the upstreams, and passes requests from the tunnel to them. Package link implements the
// protocol, dial the connections, and upstream the access to model servers.
//
//	agent.go          what all tunnels share
//	leg.go            one tunnel after another
//	edges.go          the gateways of a cluster, and which of them a leg dials
//	state.go          the states of a leg
//	hello.go          connect, race, handshake; when a hello may be sent
//	maintain.go       an established tunnel, and the search for its successor
//	session.go        one tunnel: requests, control messages, drain
//	heartbeat.go      pings, and detection of silent tunnels
//	configuration.go  an agent's configuration; reload.go: replacing it without losing a request
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
// These are the states of each leg. When Run's context ends, any state changes to draining, if
// there is a tunnel, and then to stopped. A final refusal leads to stopped at once. In silent
// and retrying, the tunnel does not answer, and the leg dials a new connection.
//
// # Legs
//
// A single gateway sends no edges, and the agent has one leg. The edges in the welcome of a
// cluster start another leg a second later. No two legs use the same edge: the hello has the
// edges of the other tunnels, and one hello at a time awaits its answer. A leg that has lost its
// tunnel, or whose tunnel is silent, dials the same gateway three times, then the next edge. The
// first leg also dials the server of the token, so that it needs no list. When an edge
// drains, its leg first gets a tunnel to another edge.
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
//	successor  when the gateway has confirmed the old tunnel's     finishes its requests
//	           drain; without an answer as for a rescue
//	rescue     after the silent old tunnel had a moment to         may finish its requests if
//	           recover, or has ended                               it recovers: Hello.Beside
//	newcomer   at once: another connector or gateway, or           is drained after the
//	           another edge, so the old tunnel is not replaced     welcome
package agent
