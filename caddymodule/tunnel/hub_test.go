package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

func TestConnectAndAsk(t *testing.T) {
	var log syncBuffer
	g := newGateway(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	h := hello("con_1")
	h.Routes = []link.Route{{Model: "*", Upstream: "ollama"}}
	c, err := g.dial(t, listenLoopback(t), h, echo)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := g.do(t, "con_1", "hi"); body != "hi" || err != nil {
		t.Fatalf("answer %q, %v", body, err)
	}
	if c.welcome.HeartbeatMillis != 1500 || c.welcome.Session == "" || c.welcome.Version != "test" {
		t.Errorf("welcome %+v", c.welcome)
	}
	infos := g.Sessions()
	if len(infos) != 1 {
		t.Fatalf("%d sessions", len(infos))
	}
	i := infos[0]
	if i.Connector != "con_1" || i.Name != "name of con_1" || i.Host != "host" || i.Account != "default" ||
		i.Transport != "quic" || i.Remote != c.socket.LocalAddr().String() || time.Since(i.Since) > time.Minute ||
		i.RTT <= 0 || i.Active != 0 || len(i.Upstreams) != 1 || len(i.Routes) != 1 || i.Session != c.welcome.Session {
		t.Errorf("info %+v", i)
	}
	if n := g.Counters(); n.Connected != 1 || n.Requests != 1 || n.Failed != 0 {
		t.Errorf("counters %+v", n)
	}
	_ = c.conn.Close(link.CloseNone, "")
	wait.Until(t, "the session is gone", func() bool { return len(g.Sessions()) == 0 })
	wait.Until(t, "it is logged", func() bool { return strings.Contains(log.String(), "connector offline") })
	if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "connector_id=con_1") {
		t.Errorf("log: %s", log.String())
	}
}

func TestHeartbeatGrowsWithTheFleet(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 1500 * time.Millisecond, 150: 1500 * time.Millisecond, 400: 4 * time.Second, 5000: 4500 * time.Millisecond,
	} {
		h := NewHub(Options{})
		for i := range n {
			h.live[strings.Repeat("x", i)] = nil
		}
		if got := h.heartbeat(); got != want {
			t.Errorf("%d connectors: %v, want %v", n, got, want)
		}
	}
}

func TestDeny(t *testing.T) {
	for name, test := range map[string]struct {
		authenticate Authenticate
		change       func(*link.Hello)
		code         string
		retry        bool
	}{
		"wrong secret": {allow, func(h *link.Hello) { h.Secret = "guess" }, link.DenyCredentials, false},
		"bad hello":    {allow, func(h *link.Hello) { h.Upstreams = nil }, link.DenyHello, false},
		"unavailable": {
			func(context.Context, string, string) (Connector, error) { return Connector{}, ErrUnavailable },
			func(*link.Hello) {}, link.DenyUnavailable, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
				g := newGateway(t, Options{Authenticate: test.authenticate})
				h := hello("con_1")
				test.change(&h)
				c, err := g.dial(t, g.socket(t), h, echo)
				var deny link.Deny
				if !errors.As(err, &deny) || deny.Code != test.code || deny.Retry != test.retry ||
					!strings.Contains(err.Error(), deny.Message) {
					t.Fatalf("hello was answered with %#v", err)
				}
				if code := c.ended(t); code != link.CloseDenied {
					t.Errorf("closed with %v", code)
				}
				if again, ok := link.Denied(context.Cause(c.conn.Context())); !ok || again != deny {
					t.Errorf("closed with %+v after %+v", again, deny)
				}
				if n := g.Counters(); n.Denied != 1 || n.Connected != 0 || len(g.Sessions()) != 0 {
					t.Errorf("counters %+v", n)
				}
			})
		})
	}
}

// TestOptionsAreSwapped: sessions outlive the configuration that let them in.
func TestOptionsAreSwapped(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		g.connect(t, "con_1", echo)
		g.SetOptions(Options{}) // no configuration at the moment
		if body, err := g.do(t, "con_1", "hi"); body != "hi" || err != nil {
			t.Fatalf("answer %q, %v", body, err)
		}
		_, err := g.dial(t, g.socket(t), hello("con_2"), echo)
		var deny link.Deny
		if !errors.As(err, &deny) || deny.Code != link.DenyUnavailable || !deny.Retry {
			t.Errorf("a hello meanwhile: %v", err)
		}
		g.SetOptions(Options{Authenticate: allow})
		g.connect(t, "con_2", named("second"))
		if body, err := g.do(t, "con_2", ""); body != "second" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
		if infos := g.Sessions(); len(infos) != 2 || infos[0].Connector != "con_1" || infos[1].Connector != "con_2" {
			t.Errorf("sessions %+v", infos)
		}
	})
}

// TestPendingCap: connections without a hello are bounded.
func TestPendingCap(t *testing.T) { synctest.Test(t, testPendingCap) }

func testPendingCap(t *testing.T) {
	g := new(network).newGateway(t, time.Millisecond, Options{})
	g.limitPending(3)
	var pending []*link.Conn
	for range 3 {
		conn, err := g.connection(t.Context(), g.socket(t))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(link.CloseNone, "") }()
		pending = append(pending, conn)
	}
	if conn, err := g.connection(t.Context(), g.socket(t)); err == nil {
		_ = conn.Close(link.CloseNone, "")
		t.Fatal("the fourth was let in")
	}
	if n := g.Counters().Rejected; n == 0 {
		t.Error("it was not counted")
	}
	_ = pending[0].Close(link.CloseNone, "")
	// Connectors with a valid hello do not count.
	for _, id := range []string{"con_1", "con_2", "con_3"} {
		wait.Until(t, "there is room", func() bool {
			_, err := g.dial(t, g.socket(t), hello(id), echo)
			return err == nil
		})
	}
	for _, conn := range pending {
		_ = conn.Close(link.CloseNone, "")
	}
	wait.Until(t, "all slots are free", func() bool {
		g.pending.mu.Lock()
		defer g.pending.mu.Unlock()
		return g.pending.unknown.Used() == 0
	})
}

// TestFindSkipsDeadSessions: between the end of a connection and the next hello
// no session is found.
func TestFindSkipsDeadSessions(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		c := g.connect(t, "con_1", named("first"))
		old := g.mustSession(t, "con_1")
		_ = c.conn.Close(link.CloseNone, "")
		wait.Until(t, "the session is unusable", func() bool { return !old.usable() })
		_, err := old.RoundTrip(post("{}"))
		wantError(t, err, link.ErrNotSent)
		if _, ok := g.Session("con_1"); ok {
			t.Error("the ended session is found")
		}
		g.connect(t, "con_1", named("second"))
		if body, err := g.do(t, "con_1", "{}"); body != "second" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
	})
}

func TestDisconnect(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		h := newGate()
		c := g.connect(t, "con_1", h)
		running := background(t, g.mustSession(t, "con_1"))
		wait.For(t, h.started, "the request")
		at := time.Now()
		g.Disconnect("con_1", link.CloseRemoved)
		r := wait.For(t, running, "the request's end")
		wantError(t, r.err, link.ErrTunnelLost)
		if d := r.at.Sub(at); d > soon {
			t.Errorf("the request failed after %v", d)
		}
		if code := c.ended(t); code != link.CloseRemoved {
			t.Errorf("closed with %v", code)
		}
		if _, ok := g.Session("con_1"); ok {
			t.Error("there still is a session")
		}
		g.Disconnect("con_1", link.CloseRemoved) // there is none: nothing
	})
}
