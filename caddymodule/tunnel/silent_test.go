package tunnel

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// TestAway: a connector whose path is dead for 10 s while it has requests keeps
// them, and gets no others meanwhile.
func TestAway(t *testing.T) {
	simulate(t, 10*time.Millisecond, func(t *testing.T, n *network, g *testGateway, sockets []net.PacketConn) {
		var events eventLog
		t.Cleanup(g.Subscribe(events.add))
		h := newGate()
		h.begins = true
		c, err := g.dial(t, sockets[0], hello("con_1"), h)
		if err != nil {
			t.Fatal(err)
		}
		c.beats()
		s := g.mustSession(t, "con_1")
		running := background(t, s)
		<-h.started
		time.Sleep(time.Second) // the answer begins
		n.losing(1)
		time.Sleep(2900 * time.Millisecond) // after a ping that may just have been sent
		if !s.usable() {
			t.Error("it is away already")
		}
		time.Sleep(5100 * time.Millisecond)
		if _, ok := g.Session("con_1"); ok || len(g.Sessions()) != 0 {
			t.Error("a connector that is away gets requests")
		}
		time.Sleep(time.Second)
		if _, ok := g.Session("con_1"); ok {
			t.Error("it is found a second later")
		}
		if _, err := send(t.Context(), s, "{}"); !errors.Is(err, link.ErrNotSent) {
			t.Errorf("a request on its session: %v", err)
		}
		time.Sleep(time.Second)
		n.heal()
		if g.mustSession(t, "con_1") != s {
			t.Error("another session is back")
		}
		close(h.open)
		if r := <-running; r.body != "at last" || r.err != nil {
			t.Errorf("the running request: %q, %v", r.body, r.err)
		}
		synctest.Wait()
		var seen []bool
		for _, e := range events.all() {
			seen = append(seen, e.Online)
		}
		if len(seen) != 3 || !seen[0] || seen[1] || !seen[2] {
			t.Errorf("events %v", seen)
		}
	})
}

// TestSilence: at the second missed ping, a request without an answer fails, and the connector cancels it when the path
// is back. A request that comes meanwhile waits for that. A shorter outage is only a delay.
func TestSilence(t *testing.T) {
	simulate(t, 10*time.Millisecond, func(t *testing.T, n *network, g *testGateway, sockets []net.PacketConn) {
		h := newGate()
		canceled := make(chan struct{})
		c, err := g.dial(t, sockets[0], hello("con_1"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			if r.Context().Err() != nil {
				close(canceled)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		c.beats()
		s := g.mustSession(t, "con_1")
		running := background(t, s)
		<-h.started
		n.losing(1)
		time.Sleep(1500 * time.Millisecond)
		n.heal()
		time.Sleep(time.Minute)
		select {
		case r := <-running:
			t.Fatalf("a short outage ended a request: %v", r.err)
		default:
		}
		n.losing(1)
		wantError(t, (<-running).err, link.ErrSilent)
		if n := g.Counters(); n.Failed != 1 {
			t.Errorf("%+v", n)
		}
		time.AfterFunc(time.Second, n.heal)
		if g.mustSession(t, "con_1") != s {
			t.Fatal("another session is back")
		}
		<-canceled
		close(h.open)
		if body, err := g.do(t, "con_1", "{}"); body != "at last" || err != nil {
			t.Errorf("afterwards: %q, %v", body, err)
		}
	})
}

// TestFrozen: after a pause of the gateway's process, the pings that it has not read do not count as missed. A request
// fails once: an answer that arrives just then is not used.
func TestFrozen(t *testing.T) {
	simulate(t, 10*time.Millisecond, func(t *testing.T, _ *network, g *testGateway, _ []net.PacketConn) {
		g.connect(t, "con_1", echo).beats()
		s := g.mustSession(t, "con_1")
		time.Sleep(800 * time.Millisecond) // the next ping comes within the time to listen
		s.recordPing(-time.Minute)
		if s.onSilence(); !s.usable() {
			t.Error("silent after a pause")
		}
		stream, err := s.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stream.wasReset = true // as onSilence does
		_, err = s.sendEncoded(stream, post("{}").WithContext(t.Context()), "")
		wantError(t, err, link.ErrSilent)
	})
}

// TestBusyLine: large requests or answers fill a slow line, so that pings are late. A request that waits for its answer
// meanwhile goes on.
func TestBusyLine(t *testing.T) {
	for name, size := range map[string][2]int{"request": {64 << 10, 1}, "answer": {1, 64 << 10}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, 20*time.Millisecond, func(t *testing.T, n *network, g *testGateway, sockets []net.PacketConn) {
				h := newGate()
				mux := http.NewServeMux()
				mux.Handle("/", h)
				text := func(n int) string {
					random := rand.NewChaCha8([32]byte{})
					b := make([]byte, n)
					_, _ = random.Read(b)
					return string(b)
				}
				answer := text(size[1])
				mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, answer)
				})
				c, err := g.dial(t, sockets[0], hello("con_1"), mux)
				if err != nil {
					t.Fatal(err)
				}
				c.beats()
				s := g.mustSession(t, "con_1")
				n.rate.Store(16 << 10) // with answers, pings are 4.5 s apart
				waiting := background(t, s)
				<-h.started
				at := time.Now()
				var large sync.WaitGroup
				for range 4 {
					large.Go(func() {
						r := post(text(size[0]))
						r.URL.Path = "/large"
						response, err := s.RoundTrip(r)
						if err != nil {
							t.Error(err)
							return
						}
						defer response.Body.Close()
						if n, err := io.Copy(io.Discard, response.Body); n != int64(len(answer)) || err != nil {
							t.Errorf("%d bytes, %v", n, err)
						}
					})
				}
				large.Wait()
				close(h.open)
				if r := <-waiting; r.err != nil {
					t.Errorf("the request that waited: %v after %v", r.err, r.at.Sub(at))
				}
			})
		})
	}
}

// TestAwayIsReplaced: the next hello of a connector that is away ends the tunnel
// that it left.
func TestAwayIsReplaced(t *testing.T) {
	simulate(t, 10*time.Millisecond, func(t *testing.T, n *network, g *testGateway, sockets []net.PacketConn) {
		h := newGate()
		h.begins = true
		c, err := g.dial(t, sockets[0], hello("con_1"), h)
		if err != nil {
			t.Fatal(err)
		}
		running := background(t, g.mustSession(t, "con_1"))
		<-h.started
		time.Sleep(15 * time.Second) // without pings
		if len(g.Sessions()) != 0 {
			t.Fatal("it is not away")
		}
		next, err := g.dial(t, sockets[1], hello("con_1"), named("again"))
		if err != nil {
			t.Fatal(err)
		}
		next.beats()
		wantError(t, (<-running).err, link.ErrTunnelLost)
		if code := c.ended(t); code != link.CloseReplaced {
			t.Errorf("closed with %v", code)
		}
		if body, err := g.do(t, "con_1", ""); body != "again" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
	})
}
