// Package agent is the life of a connector's tunnel: it dials the gateway, reports the
// upstreams, and passes requests from the tunnel to them. It
// listens on nothing. Package link is the protocol, dial makes the connections, and
// upstream asks the model servers.
//
//	agent.go          one tunnel after another
//	state.go          the states of an agent
//	hello.go          connect, race, handshake; when a hello may be sent
//	maintain.go       a tunnel that is up, and the search for its successor
//	session.go        one tunnel: requests, control messages, drain
//	heartbeat.go      pings, and a tunnel that falls silent
//	configuration.go  an agent's configuration; reload.go: another one, without losing a request
//	rotate.go         another token, without losing the tunnel
//	ending.go         why a tunnel ended; retry.go: the pause that follows
//	pair.go           how a machine becomes a connector
//	status.go, monitor.go  the status, with counts of requests
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
// The end of Run's context leads from any of them to draining, if there is a tunnel, and
// to stopped. A refusal that cannot be overcome leads to stopped at once. In silent and
// retrying there is a tunnel that does not answer, and a new connection is tried.
//
// # Hellos
//
// A hello takes the place of the connector's tunnel. What it is for decides when it is
// sent, once there is a connection for it:
//
//	for        the hello is sent                                   the old tunnel
//	first      at once                                             there is none
//	successor  when the gateway has agreed to the old tunnel's     finishes its requests
//	           drain; without an answer as for a rescue
//	rescue     when the old tunnel, which is silent, had a         may finish its requests, if
//	           moment to come back, or has ended                   it comes back: Hello.Beside
//	newcomer   at once: it is of another connector or to           is drained after the
//	           another gateway, and cuts nothing                   welcome
package agent
