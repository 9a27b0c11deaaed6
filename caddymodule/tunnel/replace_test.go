package tunnel

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestAnotherTunnelTakesOver: of the same process, or of another one as in an upgrade. The older tunnel
// finishes its requests, if it is alive, and all others go to the newer one at once.
func TestAnotherTunnelTakesOver(t *testing.T) {
	for _, instance := range []string{"another", hello("con_1").Instance} {
		t.Run(instance, func(t *testing.T) { takeOver(t, instance) })
	}
}

// answers sends pings, and answers those of the gateway.
func (c *testConnector) answers() {
	go func() {
		next := time.NewTicker(time.Second)
		defer next.Stop()
		for {
			select {
			case <-c.conn.Context().Done():
				return
			case m := <-c.messages:
				if m == (link.Ping{}) {
					_ = c.control.Send(link.Pong{})
				}
			case <-next.C:
				_ = c.control.Send(link.Ping{})
			}
		}
	}()
}

func takeOver(t *testing.T, instance string) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		h := newGate()
		older := g.connect(t, "con_1", h)
		older.answers()
		s := g.mustSession(t, "con_1")
		running := background(t, s)
		wait.For(t, h.started, "the request")

		newer := hello("con_1")
		newer.Instance = instance
		if _, err := g.dial(t, g.socket(t), newer, named("newer")); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if body, err := g.do(t, "con_1", ""); body != "newer" || err != nil {
				t.Errorf("answer %q, %v", body, err)
			}
		}
		_, err := s.RoundTrip(post("{}"))
		wantError(t, err, link.ErrNotSent)
		if infos := g.Sessions(); len(infos) != 1 || infos[0].Instance != instance {
			t.Errorf("sessions %+v", infos)
		}
		time.Sleep(aliveTimeout + soon) // no longer limit counts than the request's own
		if older.conn.Context().Err() != nil {
			t.Fatal("the older one is cut")
		}
		close(h.open)
		if r := wait.For(t, running, "the answer"); r.body != "at last" || r.err != nil {
			t.Errorf("the running request: %q, %v", r.body, r.err)
		}
		if code := older.ended(t); code != link.CloseReplaced {
			t.Errorf("closed with %v", code)
		}
		wait.Until(t, "nothing is left of it", func() bool { return g.held() == 1 })
	})
}

// TestIdleProcessIsReplaced at once: it learns that another one runs.
func TestIdleProcessIsReplaced(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		older := g.connect(t, "con_1", echo)
		newer := hello("con_1")
		newer.Instance = "another"
		at := time.Now()
		if _, err := g.dial(t, g.socket(t), newer, echo); err != nil {
			t.Fatal(err)
		}
		if code := older.ended(t); code != link.CloseReplaced || time.Since(at) > 4*soon {
			t.Errorf("closed with %v after %v", code, time.Since(at))
		}
	})
}

// TestDrainMeetsSuccessor: a process that stops while the next one comes is not cut
// because its drain arrives between the other's registration and its replacement.
func TestDrainMeetsSuccessor(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		h := newGate()
		older := g.connect(t, "con_1", h)
		s := g.mustSession(t, "con_1")
		running := background(t, s)
		wait.For(t, h.started, "the request")
		if err := older.control.Send(link.Drain{}); err != nil {
			t.Fatal(err)
		}
		if m := older.next(t); m != (link.DrainOK{}) {
			t.Fatalf("received %v", m)
		}
		older.answers()
		newer := hello("con_1")
		newer.Instance = "another"
		if _, err := g.dial(t, g.socket(t), newer, named("newer")); err != nil {
			t.Fatal(err)
		}
		s.replace()
		time.Sleep(soon)
		close(h.open)
		if r := wait.For(t, running, "the answer"); r.body != "at last" || r.err != nil {
			t.Errorf("the running request: %q, %v", r.body, r.err)
		}
		older.ended(t)
	})
}
