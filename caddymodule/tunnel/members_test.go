package tunnel

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

func testMembers(names ...string) Members {
	m := Members{Name: names[0]}
	for _, name := range names {
		m.Edges = append(m.Edges, link.Edge{Name: name, Server: name + ":7443"})
	}
	return m
}

// TestMembersForMany: a change of the members does not start a goroutine for each connector.
func TestMembersForMany(t *testing.T) {
	members := func() Members { return testMembers("a", "b") }
	h := NewHub(Options{Members: members})
	const n = 1000
	for i := range n {
		s := new(Session) // before its welcome
		s.members.mu.Lock()
		defer s.members.mu.Unlock()
		h.live[fmt.Sprint("con_", i)] = s
	}
	before := runtime.NumGoroutine()
	h.MembersChanged()
	if more := runtime.NumGoroutine() - before; more > n/2 {
		t.Errorf("%d goroutines for %d connectors", more, n)
	}
}

// TestMembersInOrder: the edges of a cluster send their connectors the members in the same order. Otherwise an edge
// that has started would get connectors from all of them at once.
func TestMembersInOrder(t *testing.T) {
	var sessions []*Session
	for _, id := range []string{"con_2", "con_3", "con_1"} {
		sessions = append(sessions, &Session{connector: Connector{ID: id}})
	}
	inOrder(sessions)
	for i, s := range sessions {
		if want := fmt.Sprint("con_", i+1); s.connector.ID != want {
			t.Errorf("number %d is %s, want %s", i+1, s.connector.ID, want)
		}
	}
}

// TestMembersAreSent: with the welcome, and when they change. An edge that drains goes on to serve.
func TestMembersAreSent(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		var members atomic.Pointer[Members]
		set := func(m Members) { members.Store(&m) }
		set(testMembers("a", "b"))
		g := newGateway(t, Options{Members: func() Members { return *members.Load() }})
		c := g.connect(t, "con_1", named("box"))
		if w := c.welcome; w.Edge != "a" || len(w.List) != 2 {
			t.Fatalf("welcome %+v", w)
		}
		set(testMembers("a", "b", "c"))
		g.MembersChanged()
		if m, ok := c.next(t).(link.Edges); !ok || m.Edge != "a" || len(m.List) != 3 {
			t.Fatalf("edges %+v", m)
		}
		draining := testMembers("a", "b", "c")
		draining.Edges = draining.Edges[1:]
		set(draining)
		g.MembersChanged()
		g.MembersChanged()
		if m, ok := c.next(t).(link.Edges); !ok || len(m.List) != 2 {
			t.Fatalf("edges %+v", m)
		}
		if body, err := g.do(t, "con_1", ""); body != "box" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
		many := testMembers("a", "b", "c", "d", "e", "f", "g", "h", "i")
		set(many)
		if late := g.connect(t, "con_2", named("late")); len(late.welcome.List) != link.MaxEdges {
			t.Errorf("welcome %+v", late.welcome)
		}
		if err := c.control.Send(link.Drain{}); err != nil {
			t.Fatal(err)
		}
		for m := range c.messages {
			if m != (link.DrainOK{}) {
				t.Errorf("received a %T, want nothing but the answer to the drain", m)
			}
		}
		if code := c.ended(t); code != link.CloseDrained {
			t.Errorf("closed with %v", code)
		}
	})
}

func TestSingleGatewaySendsNoEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(network).newGateway(t, time.Millisecond, Options{})
		h := hello("con_1")
		h.OtherEdges = []string{"a"}
		c, err := g.dial(t, g.socket(t), h, echo)
		if err != nil {
			t.Fatal(err)
		}
		g.MembersChanged()
		if err := c.control.Send(link.Ping{}); err != nil {
			t.Fatal(err)
		}
		if m := c.next(t); m != (link.Pong{HeartbeatMillis: 1500}) || c.welcome.Edge != "" || len(c.welcome.List) != 0 {
			t.Errorf("welcome %+v, then %+v", c.welcome, m)
		}
	})
}

// TestMisledHelloDoesNotReplace: a second hello that was led to this edge by mistake is denied,
// and one that is meant for it replaces the tunnel.
func TestMisledHelloDoesNotReplace(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{Members: func() Members { return testMembers("a", "b") }})
		held := g.connect(t, "con_1", named("first"))
		second := hello("con_1")
		second.OtherEdges = []string{"b", "a"}
		_, err := g.dial(t, g.socket(t), second, named("second"))
		var deny link.Deny
		if !errors.As(err, &deny) || deny.Code != link.DenyEdgeInUse || !deny.Retry {
			t.Fatalf("a second hello got %v", err)
		}
		if body, err := g.do(t, "con_1", ""); body != "first" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
		for _, change := range []func(*link.Hello){
			func(h *link.Hello) { h.OtherEdges = []string{"b"} }, // it replaces its own
			func(h *link.Hello) { h.Instance = "another" },
		} {
			h := second
			change(&h)
			next, err := g.dial(t, g.socket(t), h, named("next"))
			if err != nil {
				t.Fatal(err)
			}
			if code := held.ended(t); code != link.CloseReplaced {
				t.Errorf("closed with %v", code)
			}
			held = next
		}
		h := hello("con_2")
		h.OtherEdges = []string{"a"}
		if _, err := g.dial(t, g.socket(t), h, echo); err != nil {
			t.Errorf("a connector without a tunnel here got %v", err)
		}
	})
}
