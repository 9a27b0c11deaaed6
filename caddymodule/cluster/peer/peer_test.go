package peer

import (
	"maps"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// connect returns a connection to a peer that sends nothing, and the peer's end.
func connect(t *testing.T) (o *outgoing, there *quic.Conn) {
	t.Helper()
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	cert, pin, err := link.Identity(key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", link.GatewayTLS(cert), link.GatewayQUIC())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	conn, err := quic.DialAddr(t.Context(), listener.Addr().String(), link.ConnectorTLS("", pin), link.ConnectorQUIC(0))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if there, err = listener.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	wrapped := &link.Conn{Conn: conn}
	return &outgoing{conn: wrapped, stream: stream, control: link.NewControl(stream)}, there
}

// TestSilentPeer: a peer gets pings all the time, and is lost soon if it answers none.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	o, there := connect(t)
	pings := make(chan int, 1)
	go func() {
		n := 0
		defer func() { pings <- n }()
		stream, err := there.AcceptStream(t.Context())
		for control := link.NewControl(stream); err == nil; n++ {
			_, err = control.Receive()
		}
	}()
	ended := make(chan error, 1)
	go func() {
		l := New(Options{Gateway: testGateway{}})
		ended <- o.run(t.Context(), l.Logger, l)
	}()
	if err := wait.For(t, ended, "the end of the connection"); err == nil {
		t.Error("the connection has ended without a reason")
	}
	if n := wait.For(t, pings, "the pings"); n < 2 {
		t.Errorf("%d pings", n)
	}
}

// TestFollow: a peer that is gone, or has another address, has no connection, and a new one gets one.
func TestFollow(t *testing.T) {
	t.Parallel()
	peers := map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:1"}
	l := New(Options{Pin: func() string { return "" }, Peers: func() map[string]string { return peers }})
	defer l.Close()
	l.Follow()
	before := maps.Clone(l.links)
	peers = map[string]string{"b": "127.0.0.1:2", "c": "127.0.0.1:1"}
	l.Follow()
	if len(before) != 2 || len(l.links) != 2 || l.links["b"].address != "127.0.0.1:2" ||
		l.links["c"].address != "127.0.0.1:1" {
		t.Errorf("before %v, then %v", before, l.links)
	}
}
