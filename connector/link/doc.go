// Package link is the tunnel protocol between a gateway and its connectors,
// both ends of it.
//
// # Transport
//
// A tunnel is one QUIC connection, ALPN "postern/1", dialled by the connector.
// The connector knows the gateway by the hash of its public key (the pin in
// its token), not by a certificate authority; the gateway knows the connector
// by the secret in its hello.
//
// Where UDP is blocked, the packets of QUIC travel in a WebSocket on the gateway's
// HTTPS port, subprotocol "postern.1": each is a length of two bytes, big endian,
// and that many bytes, at most 1452. Messages of the WebSocket may hold several
// packets, and parts of them. A WebSocket carries one connection. [Conn] is either.
//
// The gateway opens a stream for each request, the connector one for control. A
// reset of a request is RESET_STREAM with a [Code], the end of a tunnel is
// CONNECTION_CLOSE with a [CloseCode].
//
// Before a gateway spends anything on a connection it can see a [Preauth], in
// the ALPN of the ClientHello or in a header of the WebSocket's request: with
// it a connector does not compete with strangers for a handshake.
//
// # Control
//
// The first stream is the connector's. It carries control
// messages, each a length of four bytes, big endian, and that many bytes of
// JSON, {"type": …, "data": …}:
//
//	connector                                gateway
//	    │ hello (id, secret, upstreams, routes) │   within 5 s of the handshake
//	    ├──────────────────────────────────────▶│
//	    │           welcome (session, heartbeat)│   the tunnel is up; an older
//	    │◀──────────────────────────────────────┤   one of the same connector is
//	    │                                       │   closed: CloseReplaced; or, if
//	    │                                       │   that is silent and the hello
//	    │                                       │   says beside, drained
//	    │        or deny (code, message, retry) │
//	    │◀──────────────────────────────────────┤   then CloseDenied
//	    │                                       │
//	    │ ping                                  │   every heartbeat; no pong for
//	    ├──────────────────────────────────────▶│   3 s: the connector dials
//	    │                      pong (heartbeat) │   beside the tunnel, which it
//	    │◀──────────────────────────────────────┤   gives up after 30 s
//	    │                                       │
//	    │ update (upstreams, routes)            │   its configuration changed; no
//	    ├──────────────────────────────────────▶│   answer: the gateway is older,
//	    │                       updated (error) │   and needs a new tunnel for it
//	    │◀──────────────────────────────────────┤
//	    │                                       │
//	    │ report (upstreams)                    │   which upstreams are reachable,
//	    ├──────────────────────────────────────▶│   and their models: when that is
//	    │                                       │   known, and when it changes; at
//	    │                                       │   most one a second
//	    │                                       │
//	    │             rotate (id, tunnel_token) │   a new secret; old and new are
//	    │◀──────────────────────────────────────┤   valid
//	    │ rotated (id, error)                   │   the connector has stored it:
//	    ├──────────────────────────────────────▶│   only the new one is valid. With
//	    │                                       │   an error both stay; without an
//	    │                                       │   answer the gateway asks again
//	    │                                       │   after the next hello
//	    │                                       │
//	    │ drain                                 │   the connector leaves: no more
//	    ├──────────────────────────────────────▶│   requests on this tunnel
//	    │                              drain_ok │   only now may a successor of
//	    │◀──────────────────────────────────────┤   it say hello
//	    │                               drained │   the last answer is in; the
//	    │◀──────────────────────────────────────┤   gateway closes: CloseDrained
//	    │                                       │
//	    │                                 drain │   the gateway shuts down: it
//	    │◀──────────────────────────────────────┤   opens no more streams
//	    │ drain_ok                              │
//	    ├──────────────────────────────────────▶│
//	    │                               drained │   the last answer is in, or its
//	    │◀──────────────────────────────────────┤   time is up; the gateway
//	    │                                       │   closes: CloseShutdown, and the
//	    │                                       │   connector dials again
//
// In both drains it is the gateway that closes: a QUIC close drops what is
// still queued, so only the side that receives answers knows when it is safe.
//
// A hello takes the place of the connector's tunnel before it. If that belongs to
// the same process, it is closed at once: a process that dials again has lost it. If it
// belongs to another, as when a newer program is started while one runs,
// it gets no more requests, and if it answers a ping of the gateway within a
// second, it finishes those that it has before it is closed. A hello that is a dry
// run takes no place: it is answered, by welcome or deny, and the gateway closes.
//
// A receiver ignores messages of unknown type and unknown fields. A message has at
// most 320 KiB, which a hello with 256 upstreams and 256 routes does not exceed.
//
// # Pairing
//
// A device that is no connector yet says hello with a claim, a code that a
// person made, in place of a connector's id, and with a secret of its own
// making. Once a person has approved it, that is the connector's secret:
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
// Whenever the connection is lost, or closed without one of the two, the device
// dials again and says the same hello: it is pending again, or learns what was
// decided meanwhile, without pending before it. Such a connection is no tunnel:
// no requests come down it.
//
// # Requests
//
// The gateway opens one bidirectional stream for each request and writes one
// HTTP/1.1 request on it (RFC 9112), whose Host is the name of an upstream; the
// connector answers with one HTTP/1.1 response. A stream is never used again,
// so nothing can be smuggled from one request into the next. [RoundTrip] is the
// gateway's end of a stream and [Serve] the connector's.
//
// Either side gives up with a stream reset that carries a [Code]. The end of a
// stream alone never ends a message: a body has a Content-Length or is chunked,
// and one that ends early is an error for its reader.
//
// # Upstreams
//
// A connector speaks to its upstreams with the same codec: [AppendRequest] and
// [AnswerReader] are what differs on a connection that carries one request after
// the other, and where the server is not ours.
package link
