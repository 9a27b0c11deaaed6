package tunnel

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestReplace: a newer hello of the same connector takes over at once. The requests of a tunnel that answers no
// ping fail.
func TestReplace(t *testing.T) {
	for _, how := range []string{"alive", "killed", "another process"} {
		t.Run(how, func(t *testing.T) {
			overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
				g := newGateway(t, Options{})
				h := newGate()
				first := g.connect(t, "con_1", h)
				old := g.mustSession(t, "con_1")
				running := background(t, old)
				wait.For(t, h.started, "the request")
				if how == "killed" {
					_ = first.socket.Close() // as kill -9: not a word of it
				}
				at := time.Now()
				newer := hello("con_1")
				if how == "another process" {
					newer.Instance = "another"
				}
				if _, err := g.dial(t, g.socket(t), newer, named("second")); err != nil {
					t.Fatal(err)
				}
				r := wait.For(t, running, "the request's end")
				wantError(t, r.err, link.ErrTunnelLost)
				if d := r.at.Sub(at); d > aliveTimeout+soon {
					t.Errorf("the old session's request failed after %v", d)
				}
				if body, err := g.do(t, "con_1", ""); body != "second" || err != nil {
					t.Errorf("answer %q, %v", body, err)
				}
				_, err := old.RoundTrip(post("{}"))
				wantError(t, err, link.ErrNotSent)
				if how != "killed" {
					if code := first.ended(t); code != link.CloseReplaced {
						t.Errorf("closed with %v", code)
					}
				}
				if n := g.Counters(); n.Replaced != 1 || n.Connected != 2 {
					t.Errorf("counters %+v", n)
				}
			})
		})
	}
}

// TestConnectorDrains: an answer that still streams is finished, what comes goes to the successor.
func TestConnectorDrains(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		h := newGate()
		h.begins = true
		first := g.connect(t, "con_1", h)
		old := g.mustSession(t, "con_1")
		running := background(t, old)
		wait.For(t, h.started, "the request")

		if err := first.control.Send(link.Drain{}); err != nil {
			t.Fatal(err)
		}
		if m := first.next(t); m != (link.DrainOK{}) {
			t.Fatalf("answer to drain: %#v", m)
		}
		_, err := old.RoundTrip(post("{}"))
		wantError(t, err, link.ErrNotSent)
		if _, ok := g.Session("con_1"); ok {
			t.Fatal("a draining session was handed out")
		}
		g.connect(t, "con_1", named("second")) // does not cut the first
		if body, err := g.do(t, "con_1", ""); body != "second" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
		if infos := g.Sessions(); len(infos) != 1 {
			t.Errorf("sessions %+v", infos)
		}

		close(h.open)
		if r := wait.For(t, running, "the answer"); r.body != "at last" || r.err != nil {
			t.Errorf("the running request: %q, %v", r.body, r.err)
		}
		if code := first.ended(t); code != link.CloseDrained {
			t.Errorf("closed with %v", code)
		}
		if n := g.Counters(); n.Replaced != 0 {
			t.Errorf("counters %+v", n)
		}
	})
}

// TestShutdown: requests finish, and connectors dial again.
func TestShutdown(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		h := newGate()
		c := g.connect(t, "con_1", h)
		s := g.mustSession(t, "con_1")
		running := background(t, s)
		wait.For(t, h.started, "the request")

		closed := make(chan error, 1)
		go func() { closed <- g.Close(t.Context()) }()
		if m := c.next(t); m != (link.Drain{}) {
			t.Fatalf("message %#v", m)
		}
		_, err := s.RoundTrip(post("{}"))
		wantError(t, err, link.ErrNotSent)
		_, err = g.dial(t, g.socket(t), hello("con_2"), echo)
		var refused *quic.TransportError
		if g.web == "" && (!errors.As(err, &refused) || refused.ErrorCode != quic.ConnectionRefused) ||
			g.web != "" && (err == nil || !strings.Contains(err.Error(), "503")) {
			t.Errorf("a hello meanwhile: %v", err)
		}

		close(h.open)
		if r := wait.For(t, running, "the answer"); r.body != "at last" || r.err != nil {
			t.Errorf("the running request: %q, %v", r.body, r.err)
		}
		if err := wait.For(t, closed, "Close"); err != nil {
			t.Error(err)
		}
		if code := c.ended(t); code != link.CloseShutdown {
			t.Errorf("closed with %v", code)
		}
		if err := g.Close(t.Context()); err != nil { // again: nothing
			t.Error(err)
		}
	})
}

// TestShutdownHasAnEnd: requests that do not finish are cut.
func TestShutdownHasAnEnd(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		h := newGate()
		c := g.connect(t, "con_1", h)
		running := background(t, g.mustSession(t, "con_1"))
		wait.For(t, h.started, "the request")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Error(err)
		}
		wantError(t, wait.For(t, running, "the request's end").err, link.ErrTunnelLost)
		if code := c.ended(t); code != link.CloseShutdown {
			t.Errorf("closed with %v", code)
		}
	})
}

// TestRestartIsNoticed: a gateway that was killed and is back with the same
// keys resets connections that it does not know.
func TestRestartIsNoticed(t *testing.T) {
	secrets := newSecrets(t)
	socket := listenFree(t)
	g := newGatewayOn(t, socket, secrets, Options{})
	c := g.connect(t, "con_1", echo)
	_ = socket.Close() // killed

	again, err := listenAgain(g.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	newGatewayOn(t, again, secrets, Options{})
	for c.conn.Context().Err() == nil { // without a reset, the silence ends it
		_ = c.control.Send(link.Ping{})
		time.Sleep(10 * time.Millisecond)
	}
	var reset *quic.StatelessResetError
	if err := context.Cause(c.conn.Context()); !asError(err, &reset) {
		t.Fatalf("the connection ended with %v", err)
	}
}

func TestResolve(t *testing.T) {
	routes := []link.Route{
		{Model: "qwen*", Upstream: "ollama", UpstreamModel: "qwen3:8b"},
		{Model: "qwen-vl", Upstream: "vllm"},
		{Model: "org/?-7b", Upstream: "vllm"},
	}
	two, one := []string{"ollama", "vllm"}, []string{"ollama"}
	for name, test := range map[string]struct {
		upstreams               []string
		routes                  []link.Route
		public, upstream, model string
		wantUpstream, wantModel string
	}{
		"only upstream":                  {one, nil, "m", "", "", "ollama", "m"},
		"only upstream, model":           {one, nil, "m", "", "other", "ollama", "other"},
		"first route wins":               {two, routes, "qwen-vl", "", "", "ollama", "qwen3:8b"},
		"route without a model":          {two, routes, "org/a-7b", "", "", "vllm", "org/a-7b"},
		"deployment's model wins":        {two, routes, "qwen", "", "mine", "ollama", "mine"},
		"deployment's upstream wins":     {two, routes, "qwen", "vllm", "", "vllm", "qwen"},
		"route of the right upstream":    {two, routes, "qwen-vl", "vllm", "", "vllm", "qwen-vl"},
		"upstream, and its route":        {two, routes, "qwen", "ollama", "", "ollama", "qwen3:8b"},
		"several upstreams, no route":    {two, nil, "m", "", "", "", ""},
		"several upstreams, no match":    {two, routes, "m", "", "", "", ""},
		"unknown upstream":               {one, nil, "m", "vllm", "", "", ""},
		"one upstream, no route matches": {one, routes[:1], "m", "", "", "ollama", "m"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Session{hello: link.Hello{Upstreams: test.upstreams, Routes: test.routes}}
			upstream, model, err := s.Resolve(test.public, test.upstream, test.model)
			if test.wantUpstream == "" {
				wantError(t, err, ErrNoRoute)
			} else if err != nil || upstream != test.wantUpstream || model != test.wantModel {
				t.Errorf("resolved to %q, %q, %v", upstream, model, err)
			}
		})
	}
}
