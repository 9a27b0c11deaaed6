package link

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/quic-go/quic-go"
)

// The results of [Conn.Transport].
const (
	TransportQUIC      = "quic"
	TransportWebSocket = "websocket"
)

// Conn is one end of a tunnel's connection: QUIC over UDP, or over a WebSocket where
// UDP is blocked. It is safe for concurrent use.
//
// A request is a stream that the gateway opens. The connector opens only one stream, for
// control, and the gateway accepts it with its first bytes. The cause of the connection's context is
// the reason for its end: see [CloseReason], [Silent], [Restarted].
type Conn struct {
	*quic.Conn
	packets *packets // of a WebSocket; nil: over UDP
}

// Close closes the connection and all of its streams, and sends the code to the other
// side. It does not wait, and drops queued data.
func (c *Conn) Close(code CloseCode, why string) error {
	if c.packets != nil {
		c.packets.leave()
	}
	return c.CloseWithError(quic.ApplicationErrorCode(code), why)
}

// RTT returns the smoothed round-trip time, or 0 if it is unknown.
func (c *Conn) RTT() time.Duration { return c.ConnectionStats().SmoothedRTT }

// Transport returns TransportQUIC or TransportWebSocket.
func (c *Conn) Transport() string {
	if c.packets != nil {
		return TransportWebSocket
	}
	return TransportQUIC
}

// Silent reports whether a connection ended because nothing was received from the other
// side for too long.
func Silent(err error) bool { return errors.As(err, new(*quic.IdleTimeoutError)) }

// Restarted reports whether a connection ended by a stateless reset, as after a restart of
// the other side.
func Restarted(err error) bool { return errors.As(err, new(*quic.StatelessResetError)) }

// Stream is the stream of one request, as both ends use it.
type Stream interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	// Close ends the write side cleanly; it must not run concurrently with a Write.
	Close() error
	CancelRead(quic.StreamErrorCode)
	CancelWrite(quic.StreamErrorCode)
	SetReadDeadline(time.Time) error
	// Context ends with the write side, or when the other side stops reading.
	Context() context.Context
}

var _ Stream = (*quic.Stream)(nil)

// stopReading cancels the read side and unblocks a Read. CancelRead alone does not unblock
// a Read that waits for the data before a reset.
func stopReading(s Stream, code Code) {
	s.CancelRead(code.wire())
	_ = s.SetReadDeadline(time.Unix(1, 0))
}

// Limits of a connector's concurrent requests on one tunnel. The gateway refuses further
// requests, or sends them to another connector.
const (
	DefaultMaxRequests = 1024
	MaxRequestsLimit   = 16384
)

const (
	// idleTimeout is how long a path may be silent before it counts as lost. It is the only limit for
	// that at the connector.
	idleTimeout = 15 * time.Second
	// keepAlive is the time without a packet after which either end sends one. The connector's pings
	// usually come sooner. The gateway's packet ends an outage for a connector whose congestion window is
	// full: quic-go then only sends probes, with pauses that double.
	keepAlive = 5 * time.Second

	// handshakeIdleTimeout is above the time for which a gateway may queue a handshake.
	handshakeIdleTimeout = 10 * time.Second

	// spareStreams is added to the connector's limit of streams: the gateway counts
	// requests, and may see the end of one before the connector.
	spareStreams = 64
	// maxControlStreams allows control streams of later versions.
	maxControlStreams = 4

	// All streams share the connection window. If clients that do not read fill it, the
	// whole tunnel stops. That takes 64 blocked streams. For requests, the connector adds the memory for them.
	connectionWindow    = 32 << 20
	maxConnectionWindow = 64 << 20

	answerWindow    = 256 << 10 // per stream, of the gateway
	maxAnswerWindow = 512 << 10
	requestWindow   = 512 << 10 // per stream, of the connector
	// MaxRequestWindow is how much of a request's body arrives before the connector reads it.
	MaxRequestWindow = 4 << 20
)

// GatewayQUIC returns the gateway's QUIC configuration.
func GatewayQUIC() *quic.Config {
	c := baseQUIC()
	c.MaxIncomingStreams = maxControlStreams
	c.InitialStreamReceiveWindow = answerWindow
	c.MaxStreamReceiveWindow = maxAnswerWindow
	return c
}

// ConnectorQUIC returns the connector's QUIC configuration. requests limits its concurrent requests; 0: the default.
func ConnectorQUIC(requests int) *quic.Config {
	c := baseQUIC()
	c.MaxIncomingStreams = int64(cmp.Or(requests, DefaultMaxRequests) + spareStreams)
	c.InitialStreamReceiveWindow = requestWindow
	c.MaxStreamReceiveWindow = MaxRequestWindow
	return c
}

// baseQUIC returns the configuration that both ends share.
func baseQUIC() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeIdleTimeout,
		MaxIdleTimeout:                 idleTimeout,
		KeepAlivePeriod:                keepAlive,
		MaxIncomingUniStreams:          -1,
		InitialConnectionReceiveWindow: connectionWindow,
		MaxConnectionReceiveWindow:     maxConnectionWindow,
	}
}
