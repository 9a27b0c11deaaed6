package tunnel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/postern-dev/postern/connector/link"
)

// asError is errors.As, for one type.
func asError[E error](err error, target *E) bool { return errors.As(err, target) }

// listenAgain binds an address that was just in use.
func listenAgain(addr string) (*net.UDPConn, error) {
	udp, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, err
	}
	for range 100 {
		conn, err := net.ListenUDP("udp", udp)
		if err == nil {
			return conn, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("binding %s", addr)
}

// network is a simulated one, in virtual time. It drops what drop says. Each direction has a line of rate bytes a
// second, with a buffer before it; 0: without a limit.
type network struct {
	simnet.PerfectRouter
	drop atomic.Pointer[func() bool]
	rate atomic.Int64
	mu   sync.Mutex
	free [2]time.Time // when the lines to and from the gateway are
}

func (n *network) SendPacket(p simnet.Packet) error {
	if drop := n.drop.Load(); drop != nil && (*drop)() {
		return nil
	}
	rate := n.rate.Load()
	if rate == 0 {
		return n.PerfectRouter.SendPacket(p)
	}
	const buffer = 5 * time.Second // as large as those of many home routers
	n.mu.Lock()
	defer n.mu.Unlock()
	free := &n.free[0]
	if p.From.(*net.UDPAddr).Port == 7443 {
		free = &n.free[1]
	}
	now := time.Now()
	if free.Sub(now) > buffer {
		return nil
	}
	if free.Before(now) {
		*free = now
	}
	*free = free.Add(time.Duration(len(p.Data)) * time.Second / time.Duration(rate))
	time.AfterFunc(free.Sub(now), func() { _ = n.PerfectRouter.SendPacket(p) })
	return nil
}

// losing drops a share of all packets, the same ones every time.
func (n *network) losing(share float64) {
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	drop := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64() < share
	}
	n.drop.Store(&drop)
}

func (n *network) heal() { n.drop.Store(nil) }

// simulate runs f in a bubble of virtual time, with a gateway and the sockets
// of connectors, all of them latency apart.
func simulate(t *testing.T, latency time.Duration, f func(*testing.T, *network, *testGateway, []net.PacketConn)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		g := n.newGateway(t, latency, Options{})
		f(t, n, g, g.simulated)
	})
}

// newGateway returns a gateway that listens on the network, with sockets of connectors.
func (n *network) newGateway(t testing.TB, latency time.Duration, o Options) *testGateway {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) }) // last: what writes its last bytes has the time
	sim := &simnet.Simnet{Router: n}
	settings := simnet.NodeBiDiLinkSettings{Latency: latency}
	gateway := sim.NewEndpoint(&net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7443}, settings)
	var connectors []net.PacketConn
	for i := range 32 {
		addr := &net.UDPAddr{IP: net.IPv4(10, 0, 1, 1), Port: 5000 + i}
		connectors = append(connectors, sim.NewEndpoint(addr, settings))
	}
	if err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	g := newGatewayOn(t, gateway, newSecrets(t), o)
	g.simulated = connectors
	return g
}

// overBoth runs a test with a gateway whose connectors come over QUIC, and with one whose
// connectors come over WebSockets. Each has a bubble of virtual time, where nothing is
// late, however slow the machine is.
func overBoth(t *testing.T, test func(t *testing.T, newGateway gatewayMaker)) {
	newGateway := func(t testing.TB, o Options) *testGateway { return new(network).newGateway(t, time.Millisecond, o) }
	newWebGateway := func(t testing.TB, o Options) *testGateway { return newGateway(t, o).overPipes(t) }
	for name, newGateway := range map[string]gatewayMaker{
		link.TransportQUIC:      newGateway,
		link.TransportWebSocket: newWebGateway,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, newGateway) })
		})
	}
}

// beats sends pings, as a real connector does. It reads and drops all messages from then on.
func (c *testConnector) beats() {
	go func() {
		next := time.NewTicker(time.Second)
		defer next.Stop()
		for {
			select {
			case <-c.conn.Context().Done():
				return
			case <-c.messages:
			case <-next.C:
				_ = c.control.Send(link.Ping{}) // it fails when the connection ends
			}
		}
	}()
}
