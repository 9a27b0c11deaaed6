package tunnel

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestLimit: a connector gets as many requests as it takes. Each request that ends allows another one.
func TestLimit(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		for limit, most := range map[int]int{2: 2, 0: link.DefaultMaxRequests} {
			g := newGateway(t, Options{})
			h := newGate()
			hello := hello("con_1")
			hello.MaxRequests = limit
			if _, err := g.dial(t, g.socket(t), hello, h); err != nil {
				t.Fatal(err)
			}
			s := g.mustSession(t, "con_1")
			var running []<-chan result
			for range most {
				running = append(running, background(t, s))
			}
			for range most {
				wait.For(t, h.started, "a request")
			}
			if info := s.Info(); info.Active != most || info.Limit != cmp.Or(limit, link.DefaultMaxRequests) {
				t.Errorf("%d of %d requests run, want %d", info.Active, info.Limit, most)
			}
			close(h.open)
			for _, r := range running {
				if r := wait.For(t, r, "an answer"); r.err != nil {
					t.Fatal(r.err)
				}
			}
			for range min(3*most/2, 100) { // all streams were taken: each of these needs one that was given back
				if body, err := g.do(t, "con_1", ""); body != "at last" || err != nil {
					t.Fatalf("answer %q, %v", body, err)
				}
			}
		}
	})
}

// TestLimitIsNotGranted: a connector that allows fewer streams than it announced
// does not make requests wait for long.
func TestLimitIsNotGranted(t *testing.T) {
	simulate(t, time.Millisecond, func(t *testing.T, _ *network, g *testGateway, sockets []net.PacketConn) {
		config := link.ConnectorQUIC(0)
		config.MaxIncomingStreams = 1
		conn, err := quic.Dial(t.Context(), sockets[0], g.addr, link.ConnectorTLS("", g.Pin()), config)
		if err != nil {
			t.Fatal(err)
		}
		c := &link.Conn{Conn: conn}
		defer c.Close(link.CloseNone, "")
		stream, err := c.OpenStreamSync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := link.NewControl(stream).Send(hello("con_1")); err != nil {
			t.Fatal(err)
		}
		s := g.mustSession(t, "con_1")
		background(t, s)
		wait.Until(t, "a request runs", func() bool { return s.Info().Active == 1 })
		r := wait.For(t, background(t, s), "the refusal")
		wantError(t, r.err, link.ErrNoCredit)
	})
}

// TestStampede: connectors that come back all at once, more than may wait for
// their hello, get in one after another.
func TestStampede(t *testing.T) {
	t.Parallel()
	const connectors = 60
	g := newGateway(t, Options{})
	g.limitPending(15)
	var dialing sync.WaitGroup
	for i := range connectors {
		dialing.Go(func() {
			for wait := 10 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
				_, err := g.dial(t, listenLoopback(t), hello(fmt.Sprintf("con_%d", i)), echo)
				if err == nil || t.Context().Err() != nil {
					return
				}
				time.Sleep(rand.N(wait))
			}
		})
	}
	dialing.Wait()
	// Those that came first may be gone again on a slow machine: they send no pings.
	if n := g.Counters().Connected; n < connectors {
		t.Errorf("%d of %d came in", n, connectors)
	}
}
