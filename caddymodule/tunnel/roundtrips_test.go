package tunnel

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A line that becomes long is noticed within two minutes, and one that becomes short at once.
func TestShortestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r roundTrips
		for minute, test := range []struct{ latest, want time.Duration }{
			{1, 1}, {40, 1}, {40, 40}, {41, 40}, {42, 41}, {2, 2}, {50, 2}, {50, 50},
		} {
			if got := r.shortest(test.latest); got != test.want {
				t.Errorf("in minute %d: %d, not %d", minute, got, test.want)
			}
			time.Sleep(roundTripTime + time.Second)
		}
		time.Sleep(time.Hour)
		if got := r.shortest(60); got != 60 {
			t.Errorf("an hour later: %d", got)
		}
	})
}

// A tunnel whose line becomes long encodes bodies.
func TestLineBecomesLong(t *testing.T) {
	simulate(t, time.Millisecond, func(t *testing.T, n *network, g *testGateway, _ []net.PacketConn) {
		g.connect(t, "con_1", echo).beats()
		s := g.mustSession(t, "con_1")
		if rtt := s.shortestRTT(); rtt >= encodeFrom {
			t.Errorf("a short line: %v", rtt)
		}
		n.rate.Store(10_000) // with less, QUIC takes all packets for lost, and measures no round trip
		time.Sleep(3 * roundTripTime)
		if rtt := s.shortestRTT(); rtt < encodeFrom {
			t.Errorf("a long line: %v", rtt)
		}
	})
}
