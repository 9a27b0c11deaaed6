package tunnel

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// expectLost kills a connector with die, and waits until its requests fail.
func (g *testGateway) expectLost(t *testing.T, c *testConnector, h *gate, busy bool, die func()) {
	t.Helper()
	s := g.mustSession(t, "con_1")
	var waiting, begun <-chan result
	if busy {
		waiting = background(t, s)
		<-h.started
		h.begins = true
		begun = background(t, s)
		<-h.started
		time.Sleep(time.Minute) // a slow model server is waited for
	}
	die()
	at := time.Now()
	due := 2*g.heartbeat() + time.Second
	if busy {
		r := <-waiting
		wantError(t, r.err, link.ErrSilent)
		// Its last ping was up to a second ago.
		if d := r.at.Sub(at); d < due-1500*time.Millisecond || d > due {
			t.Errorf("a request without an answer failed after %v, want %v", d, due)
		}
	}
	<-s.conn.Context().Done()
	// QUIC's limit counts from the first packet after the silence has begun.
	const idle = 15 * time.Second
	if d := time.Since(at); d < idle-1500*time.Millisecond || d > idle+5*time.Second {
		t.Errorf("given up after %v", d)
	}
	if busy {
		wantError(t, (<-begun).err, link.ErrTunnelLost)
	}
	s.unansweredMu.Lock()
	defer s.unansweredMu.Unlock()
	if len(s.unanswered) != 0 {
		t.Errorf("%d requests still wait", len(s.unanswered))
	}
	_ = c.conn.Close(link.CloseNone, "")
}

// TestLostConnector: requests whose answers have not begun fail at the second missed ping, the others after QUIC's
// limit, whatever the number of connectors.
func TestLostConnector(t *testing.T) {
	for _, connectors := range []int{1, 1000} {
		for _, busy := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d connectors, busy %v", connectors, busy), func(t *testing.T) {
				simulate(t, 10*time.Millisecond, func(t *testing.T, n *network, g *testGateway, sockets []net.PacketConn) {
					g.mu.Lock()
					for i := range connectors - 1 {
						g.live[fmt.Sprint("con_other", i)] = nil
					}
					g.mu.Unlock()
					h := newGate()
					c, err := g.dial(t, sockets[0], hello("con_1"), h)
					if err != nil {
						t.Fatal(err)
					}
					c.beats()
					time.Sleep(time.Minute) // it is not lost while it is heard
					g.expectLost(t, c, h, busy, func() { n.losing(1) })
				})
			})
		}
	}
}

// TestLostConnectorOverWebSocket is the same over a byte stream.
func TestLostConnectorOverWebSocket(t *testing.T) {
	simulate(t, time.Millisecond, func(t *testing.T, _ *network, g *testGateway, sockets []net.PacketConn) {
		g.overPipes(t)
		h := newGate()
		c, err := g.dial(t, sockets[0], hello("con_1"), h)
		if err != nil {
			t.Fatal(err)
		}
		c.beats()
		g.expectLost(t, c, h, true, func() { g.pipes.cut.Store(true) })
	})
}
