package link

import (
	"cmp"
	"time"

	"github.com/quic-go/quic-go"
)

// Limits of a connector's concurrent requests on one tunnel. The gateway refuses further
// requests, or sends them to another connector.
const (
	DefaultMaxRequests = 1024
	MostMaxRequests    = 16384
)

const (
	// idleTimeout is how long a path may be silent before it counts as lost.
	idleTimeout = 30 * time.Second
	// keepAlive is used by the connector, to keep its NAT mapping alive. If the mapping
	// changes while idle, the next request waits for such a packet.
	keepAlive = 10 * time.Second

	handshakeIdleTimeout = 10 * time.Second
	// connectorHandshake is the connector's limit, as the gateway may queue handshakes.
	// The dialler usually has a shorter one.
	connectorHandshake = 25 * time.Second

	// spareStreams is added to the connector's limit of streams: the gateway counts
	// requests, and may see the end of one before the connector.
	spareStreams = 64
	// maxControlStreams leaves room for control streams of later versions.
	maxControlStreams = 4

	// All streams share the connection window. If clients that do not read fill it, the
	// whole tunnel stops. That takes 64 blocked streams.
	connectionWindow    = 32 << 20
	maxConnectionWindow = 64 << 20

	answerWindow     = 256 << 10 // per stream, of the gateway
	maxAnswerWindow  = 512 << 10
	requestWindow    = 512 << 10 // per stream, of the connector
	maxRequestWindow = 4 << 20
)

// GatewayQUIC returns the gateway's QUIC configuration.
func GatewayQUIC() *quic.Config {
	c := baseQUIC()
	c.MaxIncomingStreams = maxControlStreams
	c.InitialStreamReceiveWindow = answerWindow
	c.MaxStreamReceiveWindow = maxAnswerWindow
	return c
}

// ConnectorQUIC returns the QUIC configuration of a connector with this limit of
// concurrent requests. 0 is the default limit.
func ConnectorQUIC(requests int) *quic.Config {
	c := baseQUIC()
	c.HandshakeIdleTimeout = connectorHandshake
	c.KeepAlivePeriod = keepAlive
	c.MaxIncomingStreams = int64(cmp.Or(requests, DefaultMaxRequests) + spareStreams)
	c.InitialStreamReceiveWindow = requestWindow
	c.MaxStreamReceiveWindow = maxRequestWindow
	return c
}

// baseQUIC returns the configuration that both ends share.
func baseQUIC() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeIdleTimeout,
		MaxIdleTimeout:                 idleTimeout,
		MaxIncomingUniStreams:          -1,
		InitialConnectionReceiveWindow: connectionWindow,
		MaxConnectionReceiveWindow:     maxConnectionWindow,
		// The part of an answer before a reset still arrives.
		EnableStreamResetPartialDelivery: true,
	}
}
