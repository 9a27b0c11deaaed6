package tunnel

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// held are requests that run on a session, as far as it counts them.
func held(t *testing.T, g *testGateway, id string, n int64) *Session {
	t.Helper()
	s, ok := g.Session(id)
	if !ok {
		t.Fatalf("%s has no session", id)
	}
	s.active.Store(n)
	s.beat(time.Hour) // on a slow machine, the test lasts longer than two pings
	return s
}

// TestFind: a session here has precedence, then those at peers: first those that are not silent, and of these the ones
// of the region. A session that takes no requests is not found.
func TestFind(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry := newEdge("a")
		tunnels := map[string]*testConnector{}
		for _, name := range []string{"b", "c"} {
			peer := newEdge(name)
			peer.joins(t, entry, name)
			tunnels[name] = peer.connect(t, "con_1", echo)
		}
		tunnels["here"] = entry.connect(t, "con_1", echo)
		for _, c := range tunnels {
			c.beats()
		}
		time.Sleep(publishTime)
		entry.mu.Lock()
		b, c := entry.peers["b"], entry.peers["c"]
		entry.members.Region, b.region, c.region = "eu", "us", "eu"
		entry.mu.Unlock()
		finds := func(what, want string) {
			t.Helper()
			got := "none"
			if s, ok := entry.Find("con_1"); ok && s.peer == nil {
				got = "here"
			} else if ok {
				got = s.peer.name
			}
			if got != want {
				t.Errorf("%s: found %s, want %s", what, got, want)
			}
		}
		finds("all are there", "here")
		tunnels["here"].send(t, link.Drain{})
		time.Sleep(publishTime)
		finds("it drains here", "c")
		c.lastMessage.Store(0)
		finds("the peer of the region is silent", "b")
		b.lastMessage.Store(0)
		finds("both are silent", "c")
		time.Sleep(publishTime)
		tunnels["c"].send(t, link.Drain{})
		time.Sleep(publishTime)
		finds("it drains in the region", "b")
		tunnels["b"].send(t, link.Drain{})
		time.Sleep(publishTime)
		finds("it drains everywhere", "none")
	})
}

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
