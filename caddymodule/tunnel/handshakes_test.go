package tunnel

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// newHandshakes returns a semaphore whose permits last until they are released,
// however slow the test is.
func newHandshakes() *fair.Semaphore {
	endless := handshakeLimits
	endless.MaxTime = 0
	return fair.NewSemaphore(endless)
}

// crowd takes all permits of strangers, and keeps them.
func crowd(t *testing.T, g *testGateway) []*fair.Slot {
	t.Helper()
	permits := make([]*fair.Slot, handshakeLimits.Slots-handshakeLimits.Spare)
	for i := range permits {
		var err error
		if permits[i], err = g.handshakes.Acquire(t.Context(), networkOf(1), false); err != nil {
			t.Fatal(err)
		}
	}
	return permits
}

// inside returns how many handshakes are under way, and queued how many wait.
func (g *testGateway) inside() int { n, _ := g.handshakes.Counts(); return n }
func (g *testGateway) queued() int { _, n := g.handshakes.Counts(); return n }

// TestHandshakesWaitForTheirTurn: a connector waits for a permit, and releases it with its hello,
// whether that is accepted or denied.
func TestHandshakesWaitForTheirTurn(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		permits := crowd(t, g)
		came := make(chan error, 1)
		go func() {
			_, err := g.dial(t, g.socket(t), hello("con_1"), echo)
			came <- err
		}()
		wait.Until(t, "it waits", func() bool { return g.queued() == 1 })
		permits[0].Release()
		if err := wait.For(t, came, "the welcome"); err != nil {
			t.Fatal(err)
		}
		stranger := hello("con_2")
		stranger.Secret = "wrong"
		if _, err := g.dial(t, g.socket(t), stranger, echo); err == nil {
			t.Fatal("a wrong secret is welcome")
		}
		if got := g.inside(); got != len(permits)-1 {
			t.Errorf("%d are inside", got)
		}
	})
}

// TestCloseEndsTheQueue: a handshake that waits does not hold up a shutdown.
func TestCloseEndsTheQueue(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		crowd(t, g)
		came := make(chan error, 1)
		go func() {
			_, err := g.connection(t.Context(), g.socket(t))
			came <- err
		}()
		wait.Until(t, "it waits", func() bool { return slots(g) == 1 })
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := g.Close(ended); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > handshakeLimits.Wait-time.Second {
			t.Errorf("closing took %v", took)
		}
		if err := wait.For(t, came, "the end of the handshake"); err == nil {
			t.Error("a closed gateway shakes hands")
		}
	})
}

// TestManyAddressesProveThemselves: while many connections wait, from whatever addresses, a new
// client must prove its address. The retry packet shows it that the gateway is up.
func TestManyAddressesProveThemselves(t *testing.T) {
	h := NewHub(Options{})
	for i := range handshakeLimits.Slots / 2 {
		from := &net.UDPAddr{IP: net.IPv4(192, 0, 2, byte(i)), Port: 1}
		if h.verifySourceAddress(from) {
			t.Fatalf("number %d has to prove its address", i+1)
		}
		h.pending.add(networksOf(from), "")
	}
	if !h.verifySourceAddress(&net.UDPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 1}) {
		t.Error("no address has to be proven although more connections come than can be served at once")
	}
}

// TestSilentGuestMakesRoom: a connection that delays its hello after the handshake, as one in
// addition to a silent tunnel does, delays no other handshake.
func TestSilentGuestMakesRoom(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		start := time.Now()
		conn, err := g.connection(t.Context(), g.socket(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(link.CloseNone, "")
		wait.Until(t, "there is room", func() bool { return g.inside() == 0 })
		if took := time.Since(start); took > handshakeLimits.MaxTime-time.Second || slots(g) != 1 {
			t.Errorf("after %v, with %d slots", took, slots(g))
		}
	})
}
