package tunnel

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// TestLastOnline: connectors were last online when the last one of them was lost, and those that were never seen when
// the hub started.
func TestLastOnline(t *testing.T) {
	simulate(t, 10*time.Millisecond, func(t *testing.T, _ *network, g *testGateway, sockets []net.PacketConn) {
		ids := []string{"con_1", "con_2"}
		ago := func(about string, want time.Duration) {
			t.Helper()
			if got := time.Since(g.LastOnline(ids)); (got - want).Abs() > 200*time.Millisecond {
				t.Errorf("%s: online %s ago, want %s", about, got, want)
			}
		}
		ago("at the start", 0)
		time.Sleep(time.Hour)
		ago("an hour later", time.Hour)
		for i, id := range ids {
			c, err := g.dial(t, sockets[i], hello(id), http.NotFoundHandler())
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				_ = c.conn.Close(link.CloseNone, "")
				time.Sleep(10 * time.Second)
				ago("after the loss of one", 10*time.Second)
			}
		}
		s := g.mustSession(t, "con_2")
		ago("while one is online", 0)
		g.setSilent(s, true) // the later loss of both
		time.Sleep(time.Second)
		ago("a second after the loss", time.Second)
		s.close(link.CloseReplaced)
		synctest.Wait()
		ago("after the end of a silent tunnel", time.Second)
		c, err := g.dial(t, sockets[2], hello("con_1"), http.NotFoundHandler())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.conn.Close(link.CloseNone, "")
		time.Sleep(time.Second)
		ago("after another loss", time.Second)
	})
}
