package link

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"
)

// latency is that of tunnels in a bubble, one way.
const latency = time.Millisecond

// overBothVirtual is overBoth in bubbles of virtual time, where nothing is late, however
// slow the machine is. It is for small messages, as QUIC's pacing needs the time to pass.
func overBothVirtual(t *testing.T, test func(t *testing.T, newPair pairing)) {
	for name, newPair := range map[string]pairing{
		TransportQUIC:      newVirtualPair,
		TransportWebSocket: newVirtualWebSocketPair,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(time.Minute) }) // last: what writes its last bytes has the time
				test(t, newPair)
			})
		})
	}
}

func newVirtualPair(t testing.TB, h http.Handler, limit ...int) *pair {
	t.Helper()
	sim := &simnet.Simnet{Router: &simnet.PerfectRouter{}}
	settings := simnet.NodeBiDiLinkSettings{Latency: latency}
	gateway := sim.NewEndpoint(&net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7443}, settings)
	connector := sim.NewEndpoint(&net.UDPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 5000}, settings)
	if err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	return newPairOver(t, gateway, connector, h, limit...)
}

func newVirtualWebSocketPair(t testing.TB, h http.Handler, limit ...int) *pair {
	t.Helper()
	return newWebSocketPairOver(t, func(testing.TB) (net.Conn, net.Conn) {
		gateway, connector := net.Pipe()
		return slowPipe{gateway}, slowPipe{connector}
	}, h, limit...)
}

// slowPipe is an end of a byte stream in a bubble: QUIC does not expect round trips of no
// time.
type slowPipe struct{ net.Conn }

func (p slowPipe) Write(b []byte) (int, error) {
	time.Sleep(latency)
	return p.Conn.Write(b)
}
