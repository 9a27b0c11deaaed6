package tunnel

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// TestFormerConnectors: a connector of the former protocol learns how to update, over both transports. The former
// names are written out, as old programs have them.
func TestFormerConnectors(t *testing.T) {
	for transport, dial := range map[string]func(*testing.T, *testGateway) (*link.Conn, error){
		link.TransportQUIC: func(t *testing.T, g *testGateway) (*link.Conn, error) {
			config := link.ConnectorTLS("", g.Pin())
			config.NextProtos = []string{"postern/1"}
			conn, err := quic.Dial(t.Context(), g.socket(t), g.addr, config, link.ConnectorQUIC(0))
			return &link.Conn{Conn: conn}, err
		},
		link.TransportWebSocket: func(t *testing.T, g *testGateway) (*link.Conn, error) {
			socket, _, err := websocket.Dial(t.Context(), g.web+link.WebSocketPath,
				&websocket.DialOptions{Subprotocols: []string{"postern.1"}})
			if err != nil || socket.Subprotocol() != "postern.1" {
				t.Fatalf("subprotocol %q, %v", socket.Subprotocol(), err)
			}
			raw := link.NewWebSocket(websocket.NetConn(context.Background(), socket, websocket.MessageBinary),
				&net.TCPAddr{}, socket.CloseNow)
			config := link.ConnectorTLS("", g.Pin())
			config.NextProtos = []string{"postern/1"}
			return link.WebSocketConnector(t.Context(), raw, config, link.ConnectorQUIC(0))
		},
	} {
		t.Run(transport, func(t *testing.T) {
			g := newWebGateway(t, Options{})
			conn, err := dial(t, g)
			if err != nil {
				t.Fatal(err)
			}
			_, err = g.handshake(t, conn, hello("con_1"), echo)
			deny, ok := err.(link.Deny)
			if !ok || !deny.Retry || !strings.Contains(deny.Message, "run the install line again") {
				t.Errorf("the answer to the hello is %v", err)
			}
			if len(g.Sessions()) > 0 {
				t.Error("there is a session")
			}
		})
	}
}
