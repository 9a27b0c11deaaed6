package link

import (
	"cmp"
	"time"

	"github.com/quic-go/quic-go"
)

// How many requests a connector takes at once, on one tunnel. The gateway keeps
// to it; the next ones it refuses or gives to another connector.
const (
	DefaultMaxRequests = 1024
	MostMaxRequests    = 16384
)

const (
	// idleTimeout is how long a path may be silent before it counts as lost.
	idleTimeout = 30 * time.Second
	// keepAlive is the connector's, whose packets keep its NAT's mapping alive;
	// after a mapping changed while idle, the next request waits for one.
	keepAlive = 10 * time.Second

	handshakeIdleTimeout = 10 * time.Second
	// connectorHandshake is the connector's: its gateway may let it wait for its
	// turn. How long it really waits is for those to say who dial.
	connectorHandshake = 25 * time.Second

	// spareStreams are more than a connector takes requests, since it may learn of
	// the end of one later than the gateway, which counts them.
	spareStreams = 64
	// maxControlStreams leaves room for control streams of later versions.
	maxControlStreams = 4

	// A connection window is shared by all streams: one that a few clients who
	// do not read could fill would stop the tunnel for everybody. 64 streams
	// can stand still before that.
	connectionWindow    = 32 << 20
	maxConnectionWindow = 64 << 20

	answerWindow     = 256 << 10 // per stream, of the gateway
	maxAnswerWindow  = 512 << 10
	requestWindow    = 512 << 10 // per stream, of the connector
	maxRequestWindow = 4 << 20
)

// GatewayQUIC returns the transport configuration of the gateway's end.
func GatewayQUIC() *quic.Config {
	c := baseQUIC()
	c.MaxIncomingStreams = maxControlStreams
	c.InitialStreamReceiveWindow = answerWindow
	c.MaxStreamReceiveWindow = maxAnswerWindow
	return c
}

// ConnectorQUIC returns the transport configuration of the end of a connector that
// takes so many requests at once, the default number if it is 0.
func ConnectorQUIC(requests int) *quic.Config {
	c := baseQUIC()
	c.HandshakeIdleTimeout = connectorHandshake
	c.KeepAlivePeriod = keepAlive
	c.MaxIncomingStreams = int64(cmp.Or(requests, DefaultMaxRequests) + spareStreams)
	c.InitialStreamReceiveWindow = requestWindow
	c.MaxStreamReceiveWindow = maxRequestWindow
	return c
}

// baseQUIC returns what both ends have in common.
func baseQUIC() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeIdleTimeout,
		MaxIdleTimeout:                 idleTimeout,
		MaxIncomingUniStreams:          -1,
		InitialConnectionReceiveWindow: connectionWindow,
		MaxConnectionReceiveWindow:     maxConnectionWindow,
		// What an upstream sent before it broke off still arrives.
		EnableStreamResetPartialDelivery: true,
	}
}
