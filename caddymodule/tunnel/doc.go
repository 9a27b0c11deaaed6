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
package tunnel
