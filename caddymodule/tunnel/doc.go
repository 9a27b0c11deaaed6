// Package tunnel is the gateway's end of tunnels: the listener that connectors
// dial, the registry of live sessions, and one round trip per request.
//
// A [Hub] outlives configurations. Settings of a configuration, such as
// authentication and the logger, are replaced with [Hub.SetOptions] while sessions
// and their requests continue. A [Session] is one live tunnel. A connector has at
// most one session that takes requests, and possibly older ones that drain. The
// protocol itself is in package link.
//
// Each session takes one goroutine here, which reads the control stream, and two
// inside quic-go. A session of [Hub.ServeWebSocket] takes three more for its
// WebSocket.
//
// # How a session ends
//
// A session that ends takes no further requests at once. The ways to end one differ in what happens to the running
// requests, and in the code with which the gateway closes the tunnel:
//
//	event                                    started by   running requests           code           function
//	drain                                    connector    finish                     CloseDrained   finish
//	hello on another tunnel                  connector    finish if this tunnel      CloseReplaced  replace, finish
//	                                                      answers a ping, else fail                 or close
//	connector removed, or paired again       user         fail                       CloseRemoved   close
//	gateway stops                            Hub.Close    finish, until a deadline   CloseShutdown  finish
//	silence of 15 s                          QUIC         fail                       –              run, close
//	no message for lostAfter                 gateway      fail                       CloseLost      close
//	connector does not read a message        gateway      fail                       CloseLost      send
//	malformed message                        gateway      fail                       CloseProtocol  run, close
//	connection has ended                     either end,  fail                       of that end    run, close
//	                                         or the path
//
// An edge of a cluster that drains ends no session.
package tunnel
