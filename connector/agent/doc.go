// Package agent runs a connector: it keeps a tunnel to the gateway up, reports the
// upstreams, and passes requests from the tunnel to them. Package link implements the
// protocol, dial the connections, and upstream the access to model servers.
//
//	agent.go          one tunnel after another
//	state.go          the states of an agent
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
// When Run's context ends, any state changes to draining, if there is a tunnel, and then
// to stopped. A final refusal leads to stopped at once. In silent and retrying, the tunnel
// does not answer, and the agent dials a new connection.
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
//	newcomer   at once: another connector or gateway, so the       is drained after the
//	           old tunnel is not replaced                          welcome
package agent
