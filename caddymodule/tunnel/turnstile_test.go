package tunnel

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

var (
	addressA = netip.MustParseAddr("192.0.2.1")
	addressB = netip.MustParseAddr("192.0.2.2")
)

// crowd takes n passes at once.
func crowd(t *testing.T, s *turnstile, n int) []*pass {
	t.Helper()
	passes := make([]*pass, n)
	for i := range passes {
		var err error
		if passes[i], err = s.enter(t.Context(), addressA); err != nil {
			t.Fatal(err)
		}
	}
	return passes
}

// counts tells how many are inside, and how many wait in how many queues.
func counts(s *turnstile) [3]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [3]int{s.inside, s.waiting, len(s.queues) + len(s.turns)}
}

// arrivals tells who comes in, and who is sent away.
type arrivals struct {
	in   chan string
	away chan error
}

func (a *arrivals) line(ctx context.Context, s *turnstile, addr netip.Addr, name string) {
	go func() {
		if _, err := s.enter(ctx, addr); err != nil {
			a.away <- err
			return
		}
		a.in <- name
	}()
	synctest.Wait() // in this order
}

func TestTurnstileTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turnstile
		passes := crowd(t, &s, handshakesAtOnce)
		a := arrivals{make(chan string, 10), make(chan error, 10)}
		gone, leave := context.WithCancel(t.Context())
		a.line(t.Context(), &s, addressA, "A1")
		a.line(gone, &s, addressA, "A2")
		a.line(t.Context(), &s, addressA, "A3")
		a.line(t.Context(), &s, addressB, "B1")
		if len(a.in) != 0 {
			t.Fatalf("%s came in when it was full", <-a.in)
		}
		leave()
		synctest.Wait()
		if len(a.away) != 1 {
			t.Error("who gave up still waits")
		}
		for range 100 { // nothing is left of those, nor of their address
			for _, addr := range []netip.Addr{addressA, netip.MustParseAddr("192.0.2.3")} {
				if _, err := s.enter(gone, addr); err == nil {
					t.Fatal("who has given up comes in")
				}
			}
		}
		if got := counts(&s); got != [3]int{handshakesAtOnce, 3, 4} || len(s.queues[addressA]) != 2 {
			t.Errorf("inside, waiting, queues: %v; %d wait of one address", got, len(s.queues[addressA]))
		}
		for i, want := range []string{"A1", "B1", "A3"} { // not A3 before B1
			passes[i].leave()
			passes[i].leave() // counts once
			synctest.Wait()
			if len(a.in) != 1 {
				t.Fatalf("%d came in for one who left", len(a.in))
			}
			if got := <-a.in; got != want {
				t.Errorf("%s came in, not %s", got, want)
			}
		}
		if got := counts(&s); got != [3]int{handshakesAtOnce, 0, 0} {
			t.Errorf("inside, waiting, queues: %v", got)
		}
		time.Sleep(passTime + time.Second)
		if got := counts(&s); got != [3]int{} {
			t.Errorf("for ever inside, waiting, queues: %v", got)
		}
	})
}

// TestTurnstileSendsAway: nobody waits for long, nor do too many.
func TestTurnstileSendsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turnstile
		away := make(chan error, queueLength)
		// Each comes in after passTime at the latest, to make room for the next.
		const served = int(queueTime/passTime) * handshakesAtOnce
		crowd(t, &s, handshakesAtOnce)
		for range queueLength {
			go func() {
				_, err := s.enter(t.Context(), addressA)
				away <- err
			}()
		}
		synctest.Wait()
		if _, err := s.enter(t.Context(), addressB); err != errBusy || !s.full() {
			t.Errorf("one more: %v", err)
		}
		time.Sleep(queueTime + time.Millisecond)
		in := 0
		for range queueLength {
			if <-away == nil {
				in++
			}
		}
		if got := counts(&s); in != served || got[1] != 0 {
			t.Errorf("%d came in, %d wait; want %d", in, got[1], served)
		}
		a := arrivals{make(chan string, 1), make(chan error, 1)}
		a.line(t.Context(), &s, addressA, "late")
		s.close()
		synctest.Wait()
		if len(a.away) != 1 || !s.full() {
			t.Error("a closed turnstile keeps somebody waiting")
		}
		if _, err := s.enter(t.Context(), addressA); err != errBusy {
			t.Errorf("after the close: %v", err)
		}
		time.Sleep(passTime) // the passes end
	})
}

// TestHandshakesWaitForTheirTurn: a connector comes in when there is room for
// it, and makes room itself with its hello, whether that is accepted or refused.
func TestHandshakesWaitForTheirTurn(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		passes := crowd(t, &g.turnstile, handshakesAtOnce)
		for _, p := range passes {
			p.timer.Stop() // for as long as the test takes
		}
		came := make(chan error, 1)
		go func() {
			_, err := g.dial(t, listenLoopback(t), hello("con_1"), echo)
			came <- err
		}()
		eventually(t, "it waits", func() bool { return counts(&g.turnstile)[1] == 1 })
		passes[0].leave()
		if err := wait(t, came, "the welcome"); err != nil {
			t.Fatal(err)
		}
		stranger := hello("con_2")
		stranger.Secret = "wrong"
		if _, err := g.dial(t, listenLoopback(t), stranger, echo); err == nil {
			t.Fatal("a wrong secret is welcome")
		}
		if got := counts(&g.turnstile)[0]; got != handshakesAtOnce-1 {
			t.Errorf("%d are inside", got)
		}
	})
}

// TestCloseEndsTheQueue: a handshake that waits does not hold up a shutdown.
func TestCloseEndsTheQueue(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		for _, p := range crowd(t, &g.turnstile, handshakesAtOnce) {
			p.timer.Stop()
		}
		came := make(chan error, 1)
		go func() {
			_, err := g.connection(t.Context(), listenLoopback(t))
			came <- err
		}()
		eventually(t, "it waits", func() bool { return slots(g) == 1 })
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := g.Close(ended); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > queueTime-time.Second {
			t.Errorf("closing took %v", took)
		}
		if err := wait(t, came, "the end of the handshake"); err == nil {
			t.Error("a closed gateway shakes hands")
		}
	})
}

// TestManyAddressesProveThemselves: who may have to wait is told by that that the
// gateway is there, wherever the others come from.
func TestManyAddressesProveThemselves(t *testing.T) {
	h := NewHub(Options{})
	for i := range handshakesAtOnce / 2 {
		from := &net.UDPAddr{IP: net.IPv4(192, 0, 2, byte(i)), Port: 1}
		if h.verify(from) {
			t.Fatalf("number %d has to prove its address", i+1)
		}
		h.pending.take(from, 1)
	}
	if !h.verify(&net.UDPAddr{IP: net.IPv4(198, 51, 100, 1), Port: 1}) {
		t.Error("nobody has to prove an address, though more come than can be served at once")
	}
}

// TestSilentGuestMakesRoom: whoever has shaken hands and takes his time for the
// hello, as beside a silent tunnel, keeps nobody waiting.
func TestSilentGuestMakesRoom(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		start := time.Now()
		conn, err := g.connection(t.Context(), listenLoopback(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(link.CloseNone, "")
		eventually(t, "there is room", func() bool { return counts(&g.turnstile)[0] == 0 })
		if took := time.Since(start); took > passTime-time.Second || slots(g) != 1 {
			t.Errorf("after %v, with %d slots", took, slots(g))
		}
	})
}
