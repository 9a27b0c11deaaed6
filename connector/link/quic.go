package link

import (
	"time"

	"github.com/quic-go/quic-go"
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

	// maxStreams is how many requests a connector takes at once; the next ones
	// wait at the gateway.
	maxStreams = 1024
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

// ConnectorQUIC returns the transport configuration of the connector's end.
func ConnectorQUIC() *quic.Config {
	c := baseQUIC()
	c.HandshakeIdleTimeout = connectorHandshake
	c.KeepAlivePeriod = keepAlive
	c.MaxIncomingStreams = maxStreams
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
