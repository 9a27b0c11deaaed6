package tunnel

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// networkOf returns an address of the /24 number i.
func networkOf(i int) fair.Networks {
	return fair.Parse(netip.AddrFrom4([4]byte{byte(10 + i>>16), byte(i >> 8), byte(i), 1}).String())
}

// attacker is an address that takes all that it can get.
type attacker struct {
	from    fair.Networks
	pending []*pendingConn
}

func (a *attacker) take(p *pending) (n int) {
	for s := p.add(a.from, ""); s != nil; s = p.add(a.from, "") {
		a.pending = append(a.pending, s)
		n++
	}
	return n
}

// renew is when the time of an attacker's connections is up.
func (a *attacker) renew(p *pending) {
	a.free()
	a.take(p)
}

func (a *attacker) free() {
	for _, s := range a.pending {
		s.free()
		s.free() // counts once
	}
	a.pending = nil
}

// TestPendingBudget: the budget bounds the connections of any number of addresses, and soon has
// connections for one more address.
func TestPendingBudget(t *testing.T) {
	for _, addresses := range []int{1, 3, 10, 100, 2 * maxPending} {
		p := newPending()
		attackers := make([]attacker, addresses)
		for i := range attackers {
			attackers[i].from = networkOf(i)
			if n := attackers[i].take(p); i == 0 && n != pendingPerAddress {
				t.Errorf("the first of %d addresses got %d", addresses, n)
			}
			if p.unknown.Used() > maxPending {
				t.Fatalf("%d addresses got %d", i+1, p.unknown.Used())
			}
		}
		if !p.crowded(networkOf(1 << 17)) {
			t.Errorf("nobody has to prove an address although %d connections wait", p.unknown.Used())
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range min(20*addresses, 10_000) {
			attackers[random.IntN(addresses)].renew(p)
		}
		if honest := (&attacker{from: networkOf(1 << 20)}); addresses <= 100 {
			n := honest.take(p)
			if n < 5 {
				t.Errorf("with %d addresses used, another one gets %d", addresses, n)
			}
			t.Logf("with %d addresses used, another one gets %d", addresses, n)
			honest.free()
		} else if p.unknown.Used() < maxPending*9/10 {
			t.Errorf("%d addresses got %d", addresses, p.unknown.Used())
		}
		for i := range attackers {
			attackers[i].free()
		}
		if p.unknown.Used() != 0 {
			t.Errorf("afterwards %d are left", p.unknown.Used())
		}
	}
}

// TestHelloBudget: the same for the bytes of large hellos.
func TestHelloBudget(t *testing.T) {
	p := newPending()
	var pending []*pendingConn
	for address := range 4 {
		for range 60 {
			s := p.add(networkOf(address), "")
			for n := 4 << 10; n <= 256<<10 && s.reserveHello(n) == nil; n *= 2 {
			}
			pending = append(pending, s)
		}
		if most := helloBytes/4 + 256<<10; address == 0 && (p.hellos.Used() > most || p.hellos.Used() < most/2) {
			t.Errorf("one address has %d bytes", p.hellos.Used())
		}
		if p.hellos.Used() > helloBytes {
			t.Errorf("%d addresses have %d bytes", address+1, p.hellos.Used())
		}
	}
	if s := p.add(networkOf(1<<17), ""); s.reserveHello(300<<10) != nil {
		t.Errorf("with %d bytes used, another address gets none", p.hellos.Used())
	} else {
		pending = append(pending, s)
	}
	for _, s := range pending {
		s.free()
	}
	if p.hellos.Used() != 0 {
		t.Errorf("afterwards %d bytes are left", p.hellos.Used())
	}
	if pending[0].reserveHello(1) == nil {
		t.Error("a freed connection has grown")
	}
}

// largeHello returns a hello with n routes.
func largeHello(id string, n int) link.Hello {
	h := hello(id)
	for i := range n {
		h.Routes = append(h.Routes, link.Route{Model: fmt.Sprintf("%d-", i) + strings.Repeat("m", 200), Upstream: "ollama"})
	}
	return h
}

// TestLargeHellos: while large hellos use the whole budget, another large one is denied and may be
// sent again. Small hellos are accepted.
func TestLargeHellos(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		full := g.pending.add(networkOf(1), "")
		for full.reserveHello(1<<10) == nil { // takes what it can, and others the rest
		}
		const rest = 100 << 10
		g.pending.mu.Lock()
		g.pending.hellos.Total = g.pending.hellos.Used() + rest
		g.pending.mu.Unlock()
		_, err := g.dial(t, g.socket(t), largeHello("con_1", 200), echo)
		if deny, ok := err.(link.Deny); !ok || deny.Code != link.DenyUnavailable || !deny.Retry ||
			!strings.Contains(deny.Message, "large hellos") {
			t.Errorf("with a full budget: %v", err)
		}
		g.connect(t, "con_2", echo)
		full.free()
		c, err := g.dial(t, g.socket(t), largeHello("con_1", 200), echo)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := g.do(t, "con_1", "hi"); body != "hi" || err != nil || c.welcome.Session == "" {
			t.Errorf("with a free budget: %q, %v", body, err)
		}
		wait.Until(t, "nothing is counted", func() bool {
			g.pending.mu.Lock()
			defer g.pending.mu.Unlock()
			return g.pending.hellos.Used() == 0
		})
	})
}

// frame is a control message as it is sent.
func frame(text string) string { return length(uint32(len(text))) + text }

// TestOversizedHello: the deny names the problem.
func TestOversizedHello(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		for name, hello := range map[string]string{
			"bytes": length(353 << 10),
			"parts": frame(`{"type":"hello","data":{"upstreams":[` + strings.Repeat(`"",`, 5000) + `""]}}`),
		} {
			g := newGateway(t, Options{})
			socket := g.socket(t)
			defer socket.Close()
			conn, err := g.connection(t.Context(), socket)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := conn.OpenStreamSync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(stream, hello)
			m, err := link.NewControl(stream).Receive()
			if deny, ok := m.(link.Deny); !ok || deny.Code != link.DenyHello || deny.Retry ||
				!strings.Contains(deny.Message, "fewer upstreams") {
				t.Errorf("%s: the answer is %v, %v", name, m, err)
			}
		}
	})
}

// TestHalfHandshakes: a client that begins a handshake, and never ends it, soon loses its permit.
func TestHalfHandshakes(t *testing.T) {
	simulate(t, 10*time.Millisecond, func(t *testing.T, n *network, g *testGateway, sockets []net.PacketConn) {
		taken := func() int {
			g.pending.mu.Lock()
			defer g.pending.mu.Unlock()
			return g.pending.unknown.Used()
		}
		var passed atomic.Int64
		rest := func() bool { return passed.Add(1) > 2 }
		n.drop.Store(&rest)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		dialed := make(chan error, 1)
		go func() {
			_, err := g.connection(ctx, sockets[0])
			dialed <- err
		}()
		time.Sleep(time.Second)
		if taken() != 1 {
			t.Fatalf("%d handshakes run", taken())
		}
		if err := <-dialed; err == nil {
			t.Fatal("the hands were shaken")
		}
		time.Sleep(20 * time.Second)
		if taken() != 0 {
			t.Errorf("%d handshakes run", taken())
		}
	})
}
