package link

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// TestWrongClock: a tunnel comes up, over both transports, whatever the clocks of
// its ends say. A pin has no time.
func TestWrongClock(t *testing.T) {
	const decades = 60 * 365 * 24 * time.Hour
	for name, off := range map[string]struct{ gateway, connector time.Duration }{
		"connector behind": {0, -decades},
		"connector ahead":  {0, decades},
		"gateway behind":   {-decades, 0},
		"gateway ahead":    {decades, 0},
		"apart":            {-decades, decades},
	} {
		t.Run(name, func(t *testing.T) {
			cert, pin := newTestIdentity(t)
			gateway, connector := GatewayTLS(cert), ConnectorTLS("", pin)
			gateway.Time = func() time.Time { return time.Now().Add(off.gateway) }
			connector.Time = func() time.Time { return time.Now().Add(off.connector) }
			connectBoth(t, gateway, connector)
		})
	}
}

// connectBoth connects over UDP and over a byte stream.
func connectBoth(t *testing.T, gateway, connector *tls.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	socket := listenLoopback(t)
	defer socket.Close()
	l, err := quic.Listen(socket, gateway, GatewayQUIC())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := quic.DialAddr(ctx, socket.LocalAddr().String(), connector, ConnectorQUIC(0))
	if err != nil {
		t.Fatalf("over UDP: %v", err)
	}
	_ = dialed.CloseWithError(0, "")

	gatewayEnd, connectorEnd := tcpPipe(t)
	var accepting sync.WaitGroup
	var accepted *Conn
	var acceptErr error
	accepting.Go(func() { accepted, acceptErr = WebSocketGateway(ctx, gatewayEnd, gateway, lasting) })
	conn, err := WebSocketConnector(ctx, connectorEnd, connector, ConnectorQUIC(0))
	accepting.Wait()
	if err := errors.Join(err, acceptErr); err != nil {
		t.Fatalf("over TCP: %v", err)
	}
	_ = conn.Close(CloseNone, "")
	_ = accepted.Close(CloseNone, "")
}
