package tunnel

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/connector/link"
)

// Peers are the other gateways of a cluster.
type Peers interface {
	// Check reports whether the hello is that of a gateway of this cluster.
	Check(hello link.Hello, connection tls.ConnectionState) bool
	// Pong returns what this gateway tells a peer about its contact to the store.
	Pong() link.Pong
}

// handshakePeer answers the hello of a gateway. It returns the function that serves the
// connection, nil if it was denied.
func (p *peer) handshakePeer(hello link.Hello) (run func()) {
	o := p.hub.options.Load()
	if o.Peers == nil || !o.Peers.Check(hello, p.conn.ConnectionState().TLS) {
		p.deny(slog.Bool("peer", true), link.Deny{
			Code: link.DenyCredentials, Message: "this gateway is not in a cluster with the one that dials", Retry: true,
		})
		return nil
	}
	p.accepted()
	if !p.send(link.Welcome{Version: o.Version, HeartbeatMillis: int(p.hub.heartbeat().Milliseconds())}) {
		return nil
	}
	return p.answerPeer
}

// answerPeer answers the pings of a gateway until the connection ends.
func (p *peer) answerPeer() {
	defer p.end(link.CloseNone)
	pace := rate.NewLimiter(messagesPerSecond, messagesAtOnce)
	for pace.Wait(p.conn.Context()) == nil {
		_ = p.stream.SetReadDeadline(time.Now().Add(lostAfter))
		m, err := p.control.Receive()
		switch {
		case errors.Is(err, link.ErrUnknownMessage):
			continue
		case err != nil:
			return
		}
		if _, ok := m.(link.Ping); !ok {
			continue
		}
		peers := p.hub.options.Load().Peers
		if peers == nil {
			return
		}
		pong := peers.Pong()
		pong.HeartbeatMillis = int(p.hub.heartbeat().Milliseconds())
		if !p.send(pong) {
			return
		}
	}
}
