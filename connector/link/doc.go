// Package link implements both ends of the tunnel protocol between a gateway and its
// connectors.
//
// A connector runs next to model servers, its upstreams, and dials the gateway. The gateway sends the
// requests of its clients through this connection, the tunnel. A connector authenticates with a
// tunnel token, which contains its id, its secret, and the gateway's address and pin. A person creates the
// token, or the connector obtains it by pairing. In a cluster, several gateways, called edges, act as one.
//
// # Transport
//
// A tunnel is one QUIC connection, ALPN "postern/2", dialed by the connector. The
// connector authenticates the gateway by its pin, the hash of its public key, not by a
// certificate authority. The gateway authenticates the connector by the secret in its hello.
//
// Where UDP is blocked, the packets of QUIC are sent over a WebSocket on the gateway's
// HTTPS port, subprotocol "postern.2". Each packet is a length of two bytes, big endian,
// and that many bytes, at most 1452. The boundaries of WebSocket messages have no meaning.
// A WebSocket carries one connection. A [Conn] is a connection of either kind.
//
// The gateway opens a stream for each request, the connector opens one stream for control. A request
// is canceled by RESET_STREAM and STOP_SENDING with a [Code]. A tunnel is closed by CONNECTION_CLOSE with
// a [CloseCode].
//
// To a connector of the former protocol, "postern/1" and "postern.1", the gateway only sends a deny, which says to
// run the install line again.
//
// A preauthentication in the ALPN of the ClientHello, or in a header of the WebSocket's request,
// proves the secret before the handshake: see [Preauth]. It lets the gateway prefer connectors to
// unknown clients.
//
// # Control
//
// The connector's stream carries control messages. Each is a length of four bytes, big
// endian, and that many bytes of JSON, {"type": …, "data": …}:
//
//	connector                                gateway
//	    │ hello (id, secret, upstreams, routes) │   within 5 s of the handshake
//	    ├──────────────────────────────────────▶│
//	    │           welcome (session, heartbeat)│   the tunnel is up, and replaces
//	    │◀──────────────────────────────────────┤   the connector's previous one
//	    │        or deny (code, message, retry) │   then CloseDenied, whose reason
//	    │◀──────────────────────────────────────┤   repeats code and message
//	    │                                       │
//	    │ ping                                  │   every heartbeat; with two
//	    ├──────────────────────────────────────▶│   missing, the connector gets no
//	    │                      pong (heartbeat) │   requests; either end gives a
//	    │◀──────────────────────────────────────┤   path up that is silent for 15 s
//	    │                                       │
//	    │ report (upstreams)                    │   which upstreams are reachable,
//	    ├──────────────────────────────────────▶│   and their models: once known,
//	    │                                       │   and after changes; at most one
//	    │                                       │   per second
//	    │                    recheck (upstream) │   asks for the models of this
//	    │◀──────────────────────────────────────┤   upstream again at once
//	    │                                       │
//	    │ drain                                 │   the connector leaves: no new
//	    ├──────────────────────────────────────▶│   requests on this tunnel
//	    │                              drain_ok │   from now on, the tunnel gets no
//	    │◀──────────────────────────────────────┤   requests; after the last answer,
//	    │                                       │   the gateway closes: CloseDrained
//	    │                                       │
//	    │                   edges (edge, edges) │   the members of the cluster
//	    │◀──────────────────────────────────────┤   have changed
//	    │                                       │
//	    │                                 drain │   the gateway shuts down: it opens
//	    │◀──────────────────────────────────────┤   no streams, and closes after the
//	    │ drain_ok                              │   last answer, or a deadline:
//	    ├──────────────────────────────────────▶│   CloseShutdown; the connector
//	    │                                       │   dials again
//
// In both drains the gateway closes the tunnel: a QUIC close drops queued data, so only the
// receiver of the answers knows when they are complete.
//
// A hello replaces the connector's previous tunnel, which gets no new requests. It may finish its running
// requests if it answers a ping of the gateway within three seconds, as during an upgrade or a reload. Then it is
// closed (CloseReplaced).
//
// A hello with "dry_run" replaces nothing: the gateway answers with welcome or deny, and closes.
//
// A receiver ignores messages of unknown type and unknown fields. A message is at
// most 352 KiB long, which a hello with 256 upstreams and 256 routes does not exceed.
//
// # Clusters
//
// In a cluster, the welcome contains the name of the edge and the edges that take connectors. The connector keeps
// a tunnel to each of them. A hello lists the edges of the connector's other tunnels ("other_edges"): an edge in
// this list that has a tunnel of the same process denies the hello. An edge that drains or stops is no longer in
// the list, and one that has started has another time in it.
//
// # Pairing
//
// A device that is not a connector yet sends a hello with a claim, the pairing code that a person has
// created, instead of a connector's id. The hello also contains a secret that the device has generated. After
// the approval, this is the connector's secret:
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
// sends the same hello. The answer is pending, or grant or deny if there was a decision meanwhile. Such a
// connection is not a tunnel and carries no requests.
//
// # Requests
//
// The gateway opens one bidirectional stream for each request and writes one
// HTTP/1.1 request on it (RFC 9112). Its Host is the name of an upstream. The
// connector answers with one HTTP/1.1 response. net/http parses and prints both, and [reader] checks
// heads more strictly. Streams are not reused, so a request
// cannot be smuggled into the next one. [RoundTrip] is the gateway's end of a stream and
// [Serve] the connector's.
//
// If there is no complete answer, the connector sends the name of a [Failure] as the field Postern-Error: in the
// header of an answer with status 502 and no body, or in the trailer of one that has begun and is chunked. An
// answer with a Content-Length ends early, which means upstream_reset. So does the end of the stream
// before that of an answer. Fields that begin with "Postern-" belong to the protocol: those of a model
// server are removed.
//
// The hello can announce that the connector decodes bodies, and how many bytes of them it keeps for this tunnel. On
// lines with a long round trip, the gateway then sends large bodies in the format of package bodies: compressed, as the
// difference to an earlier one. Such a body is chunked. The header field Postern-Body describes it, which model servers
// do not get. If the connector does not keep the earlier body, it answers with the failure unknown_body before it reads
// the request's body. The gateway then sends that whole.
//
// The gateway resets a request whose client has left with CodeCancelled, and either side a message whose rest
// it does not need with CodeNone. The end of a request's body is not a cancel. The end of a stream alone
// never ends a message: a body has a Content-Length or is chunked, and ending early is an
// error for its reader. A stream counts until each end has read the other's end, or stopped reading.
package link
