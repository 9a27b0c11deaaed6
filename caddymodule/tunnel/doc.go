// Package tunnel is the gateway's end of tunnels: the listener that connectors
// dial, the registry of live sessions, and one round trip per request.
//
// A [Hub] outlives configurations. What depends on one (who may connect, where
// to log) is swapped with [Hub.SetOptions] while sessions and their requests
// go on. A [Session] is one live tunnel; a connector has one at most that takes
// requests, and perhaps older ones that drain. The protocol itself is in
// package link.
//
// Each session costs one goroutine here, which reads the control stream, and
// two inside quic-go. One that came to [Hub.ServeWebSocket] has a socket of its own,
// which takes three more.
package tunnel
