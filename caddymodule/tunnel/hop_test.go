package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// publishTime is how long a test waits until a change is published.
const publishTime = 1200 * time.Millisecond

// inCluster runs a test in a bubble, with gateways that are peers.
func inCluster(t *testing.T, test func(t *testing.T, newEdge func(name string) *testGateway)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, func(name string) *testGateway {
			return new(network).newGateway(t, time.Millisecond, Options{
				Peers: anyPeer{}, Members: func() Members { return Members{Name: name} },
			})
		})
	})
}

// testPeer is the connection of a gateway to another one, where its tunnels can be used.
type testPeer struct {
	conn    *link.Conn
	control *link.Control
}

// peerSocket returns a socket whose address is known as that of a peer.
func (g *testGateway) peerSocket(t testing.TB) net.PacketConn {
	socket := g.socket(t)
	g.peerAddresses.add(socket.LocalAddr())
	return socket
}

// joins connects a gateway to a peer, as package peer does.
func (g *testGateway) joins(t testing.TB, to *testGateway, name string) *testPeer {
	t.Helper()
	conn, err := to.connectionWith(t.Context(), to.peerSocket(t), link.PeerQUIC(0))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := conn.OpenStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	control := link.NewControl(stream)
	if err := control.Send(link.Hello{Peer: name, Secret: "secret"}); err != nil {
		t.Fatal(err)
	}
	if m, err := control.Receive(); err != nil {
		t.Fatalf("the peer answers %v, %v", m, err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = conn.Close(link.CloseNone, "")
		running.Wait()
	})
	running.Go(func() {
		for {
			s, err := conn.AcceptStream(context.Background())
			if err != nil {
				return
			}
			running.Go(func() {
				if to, err := link.ReadRelayHeader(s); err == nil {
					g.Relay(s, to, g.serving)
				}
			})
		}
	})
	running.Go(func() {
		for known := make(map[*Session]Published); conn.Context().Err() == nil; time.Sleep(publishTime / 12) {
			for _, m := range g.Changes(known, true) {
				_ = control.Send(m)
			}
		}
	})
	running.Go(func() {
		for conn.Context().Err() == nil {
			_ = control.Send(link.Ping{}) // it fails when the connection ends
			time.Sleep(500 * time.Millisecond)
		}
	})
	running.Go(func() {
		for {
			if _, err := control.Receive(); err != nil {
				return
			}
		}
	})
	return &testPeer{conn, control}
}

func (g *testGateway) serving() error {
	if g.lost.Load() {
		return errors.New("the store is lost")
	}
	return nil
}

// remoteOf returns the tunnels of a connector at peers.
func (g *testGateway) remoteOf(id string) []*Session {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Clone(g.remote[id])
}

// TestHop sends requests for a connector of a peer, until it leaves.
func TestHop(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with := newEdge("a"), newEdge("b")
		var events eventLog
		t.Cleanup(entry.Subscribe(events.add))
		with.joins(t, entry, "b")
		c := with.connect(t, "con_1", echo)
		c.beats()
		for _, body := range []string{"one", "two"} {
			if got, err := entry.do(t, "con_1", body); got != body || err != nil {
				t.Errorf("answer %q, %v", got, err)
			}
		}
		s := entry.mustSession(t, "con_1")
		if info := entry.Sessions(); len(info) != 1 || !info[0].AtPeer || !slices.Equal(info[0].Edges, []string{"b"}) {
			t.Errorf("sessions %+v", info)
		}
		online, stop := entry.Follow(func(Event) {})
		stop()
		if len(online) != 1 || online[0].Connector != "con_1" || online[0].Account != "default" {
			t.Errorf("online: %+v", online)
		}
		time.Sleep(publishTime)
		if s.Active() != 0 || with.mustSession(t, "con_1").Active() != 0 {
			t.Error("requests have not ended")
		}
		_ = c.conn.Close(link.CloseNone, "")
		time.Sleep(publishTime)
		if _, ok := entry.Find("con_1"); ok || len(entry.Sessions()) != 0 {
			t.Error("a session is found after its end")
		}
		if _, err := send(t.Context(), s, "{}"); !errors.Is(err, link.ErrNotSent) {
			t.Errorf("a request on its session: %v", err)
		}
		if all := events.all(); len(all) != 2 || !all[0].Online || all[1].Online {
			t.Errorf("events %+v", all)
		}
	})
}

// TestReplacedAtPeer: a tunnel at a peer is not chosen once its connector was replaced, or removed, which
// the peer may not know yet.
func TestReplacedAtPeer(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		with.connect(t, "con_1", echo)
		time.Sleep(publishTime)
		for _, pairing := range []string{"", "pair_2"} {
			entry.SetOptions(Options{Peers: anyPeer{}, Valid: func(c Connector) (until time.Time, err error) {
				if c.Pairing != pairing {
					err = errors.New("paired again")
				}
				return until, err
			}})
			if _, found := entry.Find("con_1"); found != (pairing == "") {
				t.Errorf("with the pairing %q, the tunnel is found: %v", pairing, found)
			}
		}
	})
}

// TestRequestsOverHubs: a connector's requests count over all gateways.
func TestRequestsOverHubs(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, b, c := newEdge("a"), newEdge("b"), newEdge("c")
		b.joins(t, entry, "b")
		c.joins(t, entry, "c")
		entry.connect(t, "con_1", echo).beats()
		b.connect(t, "con_1", echo).beats()
		b.connect(t, "con_2", echo).beats()
		c.connect(t, "con_2", echo).beats()
		time.Sleep(publishTime)
		held(t, b, "con_1", 5)
		held(t, b, "con_2", 3)
		held(t, c, "con_2", 3)
		time.Sleep(publishTime)
		if info := entry.Sessions(); len(info) != 2 || info[0].Active != 5 || info[0].Own != 0 || info[1].Active != 6 ||
			len(info[1].Edges) != 2 {
			t.Errorf("sessions %+v", info)
		}
		held(t, b, "con_1", 0)
		held(t, b, "con_2", 0)
		held(t, c, "con_2", 0)
	})
}

// TestLostStoreAtPeer: a request is not sent by a peer that has lost its store.
func TestLostStoreAtPeer(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		with.connect(t, "con_1", echo).beats()
		time.Sleep(publishTime)
		with.lost.Store(true)
		_, err := entry.do(t, "con_1", "{}")
		wantError(t, err, link.ErrNotSent)
		with.lost.Store(false)
		if body, err := entry.do(t, "con_1", "{}"); body != "{}" || err != nil {
			t.Errorf("with the store again: %q, %v", body, err)
		}
		time.Sleep(publishTime)
		if n := with.mustSession(t, "con_1").Active(); n != 0 {
			t.Errorf("%d requests run", n)
		}
	})
}

// TestPresence sends a peer changes of a tunnel.
func TestPresence(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		h := hello("con_1")
		h.Upstreams, h.Routes = []string{"ollama", "vllm"}, []link.Route{{Model: "*", Upstream: "vllm"}}
		c, err := with.dial(t, with.socket(t), h, echo)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(publishTime)
		s := entry.mustSession(t, "con_1")
		say := func(m link.Message) {
			t.Helper()
			if err := c.control.Send(m); err != nil {
				t.Fatal(err)
			}
			time.Sleep(publishTime)
		}
		if up, _, err := s.Resolve("m", "", ""); up != "vllm" || err != nil {
			t.Errorf("upstream %q, %v", up, err)
		}
		say(link.Report{Upstreams: []link.UpstreamReport{{Name: "vllm"}, {Name: "ollama", Reachable: true}}})
		if states := s.States(); !states[1].Down() || !states[0].Reachable {
			t.Errorf("states %+v", states)
		}
		say(link.Report{})
		if states := s.States(); states[1].Server.Known {
			t.Errorf("after an empty report: %+v", states)
		}
		say(link.Ping{})
		time.Sleep(7 * time.Second)
		if _, ok := entry.Find("con_1"); ok {
			t.Error("a connector without pings gets requests at the peer")
		}
		say(link.Ping{})
	})
}

// TestManyAreAnnounced to a peer, each once.
func TestManyAreAnnounced(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		const many = 600
		entry, with := newEdge("a"), newEdge("b")
		with.connect(t, "con_1", echo).beats()
		real := with.mustSession(t, "con_1")
		for i := range many {
			id := fmt.Sprint("con_many_", i)
			with.register(newSession(real.connection, Connector{ID: id}, hello(id)))
		}
		p := with.joins(t, entry, "b")
		for range 2 {
			time.Sleep(publishTime)
			if n := len(entry.Sessions()); n != many+1 {
				t.Errorf("%d sessions", n)
			}
			if all := entry.remoteOf("con_many_7"); len(all) != 1 {
				t.Errorf("%d tunnels of one", len(all))
			}
			with.joins(t, entry, "c")
			with.joins(t, entry, "b") // again
			time.Sleep(publishTime)
			if all := entry.remoteOf("con_many_7"); len(all) != 2 {
				t.Errorf("%d tunnels of one", len(all))
			}
			entry.mu.RLock()
			c := entry.peers["c"]
			entry.mu.RUnlock()
			c.end(link.CloseLost)
			time.Sleep(publishTime)
		}
		if code, _ := link.CloseReason(context.Cause(p.conn.Context())); code != link.CloseReplaced {
			t.Errorf("closed with %v", code)
		}
	})
}

// TestRoundTripThere: a first round trip between a peer and its connector that took long is corrected
// with the next change.
func TestRoundTripThere(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		entry, with := newEdge("a"), newEdge("b")
		with.joins(t, entry, "b")
		with.connect(t, "con_1", echo).beats()
		time.Sleep(publishTime)
		s := entry.mustSession(t, "con_1")
		announced := s.shortestRTT()
		s.peerRTT.Store(time.Hour.Microseconds())
		held(t, with, "con_1", 1)
		time.Sleep(publishTime)
		if rtt := s.shortestRTT(); rtt > announced || rtt == 0 {
			t.Errorf("the round trip is %v, was announced as %v", rtt, announced)
		}
	})
}
