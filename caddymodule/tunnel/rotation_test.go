package tunnel

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// testRotation is a rotation of every connector, once it is begun.
type testRotation struct {
	mu                 sync.Mutex
	offer              *link.Rotate
	asked              int
	answers            chan link.Rotated
	hellos             []string // ids and secrets
	said               int64    // the number of their secrets
	failing            bool     // Rotated fails
	renewed, confirmed []string
	block              chan struct{} // Next waits for it, if it is there
}

func newRotation() *testRotation { return &testRotation{answers: make(chan link.Rotated, 10)} }

func (r *testRotation) begin(number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offer = &link.Rotate{Number: number, TunnelToken: "ptt_new"}
}

func (r *testRotation) Pending(string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offer != nil
}

func (r *testRotation) Next(context.Context, string) (link.Rotate, bool) {
	r.mu.Lock()
	r.asked++
	block := r.block
	r.mu.Unlock()
	if block != nil {
		<-block
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.offer == nil {
		return link.Rotate{}, false
	}
	return *r.offer, true
}

func (r *testRotation) Renew(_ context.Context, connectorID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewed = append(r.renewed, connectorID)
	r.offer = &link.Rotate{Number: int64(len(r.renewed)), TunnelToken: "ptt_new"}
}

func (r *testRotation) Confirm(_ context.Context, connectorID, pin string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.confirmed = append(r.confirmed, connectorID+":"+pin)
}

func (r *testRotation) Hello(connectorID, secret string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hellos = append(r.hellos, connectorID+":"+secret)
	return r.said
}

func (r *testRotation) Rotated(_ context.Context, connectorID string, answer link.Rotated) bool {
	answer.Error = connectorID + ":" + answer.Error
	r.answers <- answer
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.failing
}

// quiet wants no message for the connector, and no answer for the desk.
func (c *testConnector) quiet(t *testing.T, r *testRotation) {
	t.Helper()
	select {
	case m := <-c.messages:
		t.Errorf("unexpected message %v", m)
	case a := <-r.answers:
		t.Errorf("unexpected answer %+v", a)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestRotate(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		r := newRotation()
		g := newGateway(t, Options{Rotation: r})
		g.Rotate("con_1") // nobody is there
		gate := newGate()
		c := g.connect(t, "con_1", gate)
		running := background(t, g.mustSession(t, "con_1"))
		wait.For(t, gate.started, "a request")
		g.Rotate("con_1") // there is nothing to offer
		c.quiet(t, r)

		r.begin(2)
		for range 3 {
			g.Rotate("con_1")
		}
		if m, ok := c.next(t).(link.Rotate); !ok || m.Number != 2 || m.TunnelToken != "ptt_new" {
			t.Fatalf("received %v", m)
		}
		c.quiet(t, r) // what is offered is not offered again before its answer
		for _, answer := range []link.Rotated{{Number: 1}, {Number: 2, Error: "no", Pins: []string{g.Pin()}}, {Number: 2}} {
			if err := c.control.Send(answer); err != nil {
				t.Fatal(err)
			}
		}
		if got := wait.For(t, r.answers, "the answer"); !reflect.DeepEqual(got,
			link.Rotated{Number: 2, Error: "con_1:no", Pins: []string{g.Pin()}}) {
			t.Errorf("the answer is %+v", got)
		}
		c.quiet(t, r) // one answer counts, and a failure is not offered again at once

		g.Rotate("con_1") // again, after a failure
		if m, ok := c.next(t).(link.Rotate); !ok || m.Number != 2 {
			t.Fatalf("received %v", m)
		}
		// Another gateway has offered a later one.
		if err := c.control.Send(link.Rotated{Number: 3}); err != nil {
			t.Fatal(err)
		}
		if got := wait.For(t, r.answers, "the answer"); got.Error != "con_1:" || got.Number != 3 {
			t.Errorf("the answer is %+v", got)
		}
		close(gate.open)
		if got := wait.For(t, running, "the request"); got.err != nil || got.body != "at last" {
			t.Errorf("the request got %q, %v", got.body, got.err)
		}
	})
}

// A connector that was away is offered its token after its hello, and the welcome
// comes first, however long the store takes.
func TestRotateAtTheNextHello(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		r := newRotation()
		r.begin(2)
		r.block = make(chan struct{})
		g := newGateway(t, Options{Rotation: r})
		c := g.connect(t, "con_1", named("alive"))
		if err := c.control.Send(link.Ping{}); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.next(t).(link.Pong); !ok {
			t.Error("a ping has to wait for the store")
		}
		if body, err := g.do(t, "con_1", "{}"); err != nil || body != "alive" {
			t.Errorf("a request got %q, %v", body, err)
		}
		close(r.block)
		if m, ok := c.next(t).(link.Rotate); !ok || m.Number != 2 {
			t.Fatalf("received %v", m)
		}
	})
}

// The secret of a hello is confirmed before another one is offered.
func TestHelloIsConfirmed(t *testing.T) {
	r := newRotation()
	r.begin(8)
	r.said, r.failing = 7, true
	g := newGateway(t, Options{Rotation: r})
	c := g.connect(t, "con_1", echo)
	confirmed := func() {
		t.Helper()
		if got := wait.For(t, r.answers, "the confirmation"); got.Number != 7 {
			t.Errorf("confirmed: %+v", got)
		}
	}
	confirmed()
	c.quiet(t, r)
	r.mu.Lock()
	r.failing = false
	r.mu.Unlock()
	g.Rotate("con_1")
	confirmed()
	if m, ok := c.next(t).(link.Rotate); !ok || m.Number != 8 {
		t.Errorf("received %v", m)
	}
	c.quiet(t, r)
}

// A connector that does not know of rotations says nothing, and stays.
func TestRotateOfAnOldConnector(t *testing.T) {
	r := newRotation()
	r.begin(2)
	g := newGateway(t, Options{Rotation: r})
	for range 2 { // it is offered at each hello
		c := g.connect(t, "con_1", echo)
		if m, ok := c.next(t).(link.Rotate); !ok || m.Number != 2 {
			t.Fatalf("received %v", m)
		}
		if body, err := g.do(t, "con_1", "x"); err != nil || body != "x" {
			t.Errorf("a request got %q, %v", body, err)
		}
	}
}

// Answers without an offer cost nothing.
func TestRotatedFlood(t *testing.T) {
	r := newRotation()
	g := newGateway(t, Options{Rotation: r})
	c := g.connect(t, "con_1", echo)
	for i := range 50 {
		if err := c.control.Send(link.Rotated{Number: int64(i % 2)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.control.Send(link.Ping{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.next(t).(link.Pong); !ok {
		t.Error("no pong")
	}
	c.quiet(t, r)
	if r.asked != 0 {
		t.Errorf("the desk was asked %d times", r.asked)
	}
}

// A connector that was away on its tunnel has no next hello: it is offered its
// token when it is back.
func TestRotateWhileAway(t *testing.T) {
	r := newRotation()
	g := newGateway(t, Options{Rotation: r})
	c := g.connect(t, "con_1", echo)
	g.setSilent(g.mustSession(t, "con_1"), true)
	r.begin(2)
	g.Rotate("con_1")
	c.quiet(t, r)
	if err := c.control.Send(link.Ping{}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a pong as well
		if m, ok := c.next(t).(link.Rotate); ok {
			if m.Number != 2 {
				t.Errorf("offered %v", m)
			}
			return
		}
	}
	t.Error("it is offered nothing")
}

// The secret of a connector is rotated on one tunnel while its hello on another one is handled. That
// tunnel does not end as removed, which would be final for the connector.
func TestRotatedWhileSayingHello(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		for _, known := range []bool{true, false} {
			var calls atomic.Int32
			g := newGateway(t, Options{
				Authenticate: func(ctx context.Context, id, secret string) (Connector, error) {
					if calls.Add(1) > 1 {
						return Connector{}, errors.New("an old secret")
					}
					return allow(ctx, id, secret)
				},
				Exists: func(c Connector) bool { return known && c.ID == "con_1" },
			})
			c, err := g.dial(t, g.socket(t), hello("con_1"), named("a"))
			if c == nil {
				t.Fatal(err)
			}
			if !known {
				if code := c.ended(t); code != link.CloseRemoved {
					t.Errorf("closed with %v, want %v", code, link.CloseRemoved)
				}
				continue
			}
			if body, err := g.do(t, "con_1", ""); body != "a" || err != nil {
				t.Errorf("after a rotation: %q, %v", body, err)
			}
		}
	})
}
