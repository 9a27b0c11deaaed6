// Package link implements both ends of the tunnel protocol between a gateway and its
// connectors.
//
// # Transport
//
// A tunnel is one QUIC connection, ALPN "postern/1", dialed by the connector. The
// connector authenticates the gateway by the hash of its public key (the pin in its
// token), not by a certificate authority. A token may have a second pin, of the key that
// the gateway will have next. The gateway authenticates the connector by the
// secret in its hello.
//
// Where UDP is blocked, the packets of QUIC are sent over a WebSocket on the gateway's
// HTTPS port, subprotocol "postern.1". Each packet is a length of two bytes, big endian,
// and that many bytes, at most 1452. The boundaries of WebSocket messages have no meaning.
// A WebSocket carries one connection. [Conn] is either.
//
// The gateway opens a stream for each request, the connector one for control. A request
// is reset by RESET_STREAM with a [Code], and a tunnel is closed by CONNECTION_CLOSE with
// a [CloseCode].
//
// A [Preauth] in the ALPN of the ClientHello, or in a header of the WebSocket's request,
// lets the gateway prefer connectors to unknown clients before the handshake.
//
// # Control
//
// The connector's stream carries control messages. Each is a length of four bytes, big
// endian, and that many bytes of JSON, {"type": …, "data": …}:
//
//	connector                                gateway
//	    │ hello (id, secret, upstreams, routes) │   within 5 s of the handshake
//	    ├──────────────────────────────────────▶│
//	    │           welcome (session, heartbeat)│   the tunnel is up; an older
//	    │◀──────────────────────────────────────┤   one of the same connector is
//	    │                                       │   closed: CloseReplaced; or, if
//	    │                                       │   that is silent and the hello
//	    │                                       │   has "beside", drained
//	    │        or deny (code, message, retry) │   then CloseDenied, whose
//	    │◀──────────────────────────────────────┤   reason says it again
//	    │                                       │
//	    │ ping                                  │   every heartbeat; no pong for
//	    ├──────────────────────────────────────▶│   3 s: the connector dials
//	    │                      pong (heartbeat) │   again; the old tunnel is
//	    │◀──────────────────────────────────────┤   closed after 30 s
//	    │                                       │
//	    │ report (upstreams)                    │   which upstreams are reachable,
//	    ├──────────────────────────────────────▶│   and their models: when that is
//	    │                                       │   known, and when it changes; at
//	    │                                       │   most one a second
//	    │                                       │
//	    │         rotate (number, tunnel_token) │   a new secret; old and new are
//	    │◀──────────────────────────────────────┤   valid
//	    │ rotated (number, error)               │   the connector has stored it, or
//	    ├──────────────────────────────────────▶│   a later one before: older ones
//	    │                                       │   become invalid. With an error
//	    │                                       │   all stay valid; without an
//	    │                                       │   answer the gateway asks again
//	    │                                       │   after the next hello
//	    │                                       │
//	    │ drain                                 │   the connector leaves: no new
//	    ├──────────────────────────────────────▶│   requests on this tunnel
//	    │                              drain_ok │   only now may its successor
//	    │◀──────────────────────────────────────┤   send a hello
//	    │                               drained │   the last answer is in; the
//	    │◀──────────────────────────────────────┤   gateway closes: CloseDrained
//	    │                                       │
//	    │                   edges (edge, edges) │   the members of its cluster
//	    │◀──────────────────────────────────────┤   changed
//	    │                                       │
//	    │                                 drain │   the gateway leaves; it opens no
//	    │◀──────────────────────────────────────┤   new streams if it shuts down
//	    │ drain_ok                              │
//	    ├──────────────────────────────────────▶│
//	    │                               drained │   the last answer is in, or its
//	    │◀──────────────────────────────────────┤   time is up; the gateway
//	    │                                       │   closes: CloseShutdown, and the
//	    │                                       │   connector dials again
//
// In both drains the gateway closes the tunnel: a QUIC close drops queued data, so only the
// receiver of the answers knows when it is safe.
//
// A hello replaces the connector's previous tunnel. If that belongs to the same process,
// it is closed at once, as a process that dials again has lost it. If it belongs to another
// process, as during an upgrade, it gets no new requests. If it then answers a ping of
// the gateway within a second, it may finish its requests before it is closed. A hello with
// dry_run replaces nothing: the gateway answers with welcome or deny, and closes. A welcome
// may offer a newer connector for the system of the hello.
//
// In a cluster, the welcome names the edge, the number of tunnels that the connector shall
// have, and the edges for them. Each of the tunnels is to a different edge. A hello has the
// edges that the other tunnels are at: an edge that has one of them denies the hello (held).
// When an edge drains, the connector dials another edge, and then sends a drain.
//
// Gateways of a cluster use the same protocol: the one that dials sends a hello with its name
// and a proof, and its peer opens a stream for each request to one of its tunnels. The stream
// begins with the length and the id of the connector. With a length of 0, an enter follows: it
// asks for a place in a queue, which the request has until that stream ends.
//
// A receiver ignores messages of unknown type and unknown fields. A message has at
// most 320 KiB, which a hello with 256 upstreams and 256 routes does not exceed.
//
// # Pairing
//
// A device that is not a connector yet sends a hello with a claim, the code created by a
// person, instead of a connector's id, and with a secret that it generated. After the
// approval, that is the connector's secret:
//
//	device                                   gateway
//	    │ hello (claim, secret, upstreams)      │
//	    ├──────────────────────────────────────▶│
//	    │     pending (fingerprint, expires_at) │   a person compares the
//	    │◀──────────────────────────────────────┤   fingerprint with the device's
//	    │                                       │
//	    │ ping                                  │   as on a tunnel
//	    ├──────────────────────────────────────▶│
//	    │                      pong (heartbeat) │
//	    │◀──────────────────────────────────────┤
//	    │                                       │
//	    │                  grant (tunnel_token) │   approved: the device closes,
//	    │◀──────────────────────────────────────┤   CloseNone, and dials with
//	    │                                       │   the token
//	    │        or deny (code, message, retry) │   unknown, used, expired, …
//	    │◀──────────────────────────────────────┤   then CloseDenied
//
// If the connection is lost, or closed without a decision, the device dials again and
// sends the same hello. It is pending again, or gets the decision made meanwhile, without
// pending before it. Such a connection is not a tunnel and carries no requests.
//
// # Requests
//
// The gateway opens one bidirectional stream for each request and writes one
// HTTP/1.1 request on it (RFC 9112), whose Host is the name of an upstream; the
// connector answers with one HTTP/1.1 response. Streams are not reused, so a request
// cannot be smuggled into the next one. [RoundTrip] is the gateway's end of a stream and
// [Serve] the connector's.
//
// The hello can announce that the connector decodes bodies, and how many bytes of them it
// keeps. The gateway then sends large bodies on lines with a long round trip in the format of
// package blocks: compressed, and without the blocks that the connector has. Such a body is
// chunked. The field Postern-Blocks has its decoded length; model servers do not get it. If
// the connector does not have a block, it resets the request with CodeUnknownBlock before any
// model server sees it, and the gateway sends it again without references.
//
// An event stream is sent with the transfer coding "events" before chunked: the bytes that
// an event shares with its predecessor are not repeated. A stream that is longer than 64 times
// its records and 64 KiB is malformed.
//
// Either side aborts with a stream reset that carries a [Code]. The end of a stream alone
// never ends a message: a body has a Content-Length or is chunked, and ending early is an
// error for its reader.
package link
