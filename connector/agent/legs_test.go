package agent

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestLegs: the connector has a tunnel to each edge. The other tunnels serve while an edge is down.
func TestLegs(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b", "c")
	a := c.startLegs(answerWith(t, "x"), hasty)
	for _, name := range c.awaitLegs(a, 3) {
		c.answers(name, "x")
	}
	if s := a.Status(); s.Tunnel == nil || s.Legs[0].Edge != "a" || s.Legs[0].Tunnel.Session != s.Tunnel.Session ||
		s.State != StateOnline || s.Problem != nil {
		t.Errorf("status %+v", s)
	}
	c.kill("a")
	c.forget("a")
	c.awaitLegs(a, 2)
	for _, name := range c.at() {
		c.answers(name, "x")
	}
	c.start("a")
	c.awaitLegs(a, 3)
	for _, name := range []string{"b", "c"} {
		if n := strings.Count(a.log.String(), "edge="+name+"\n"); n != 2 { // connecting, connected
			t.Errorf("the tunnel to %s was disturbed", name)
		}
	}
	for _, name := range c.at() { // and no edge can send the list
		c.kill(name)
		c.forget(name)
	}
	c.start("a")
	c.awaitLegs(a, 1)
	c.start("c")
	c.awaitLegs(a, 2)
}

// TestOldList: the list has none of the edges that run.
func TestOldList(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b")
	a := c.startLegs(answerWith(t, "x"), hasty)
	c.awaitLegs(a, 2)
	for _, name := range []string{"b", "a"} {
		c.kill(name)
		c.forget(name)
	}
	c.edges["d"] = &testEdge{name: "d", address: c.edges["a"].address}
	c.start("d")
	if names := c.awaitLegs(a, 1); names[0] != "d" {
		t.Errorf("tunnels to %v", names)
	}
}

// TestLegsOfASingleGateway: the agent has one leg, and no goroutine for a second one.
func TestLegsOfASingleGateway(t *testing.T) {
	c := startEdges(t, "a")
	c.alone = true
	c.stop("a")
	c.start("a")
	a := c.startLegs(answerWith(t, "x"), nil)
	wait.Until(t, "the tunnel", func() bool { return a.Status().State == StateOnline })
	c.answers("a", "x")
	if s := a.Status(); len(s.Legs) != 0 || len(a.allLegs()) != 1 {
		t.Errorf("status %+v, %d legs", s, len(a.allLegs()))
	}
	if strings.Contains(a.log.String(), "edge") {
		t.Errorf("log %s", a.log)
	}
}

// TestDrainedEdge: the tunnel stays until the edge ends. The edge gets no hello before it is in the list again.
func TestDrainedEdge(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b", "c")
	a := c.startLegs(answerWith(t, "x"), nil)
	c.awaitLegs(a, 3)
	c.set(func() { c.edges["b"].draining = true })
	wait.Until(t, "the news", func() bool { edges, _ := a.current.Load().knownEdges(); return len(edges) == 2 })
	c.awaitLegs(a, 3)
	c.answers("b", "x")
	c.stop("b")
	wait.Until(t, "the end of its leg", func() bool { return len(a.Status().Legs) == 2 })
	c.start("b")
	if n := c.edges["b"].Counters(); n.Connected+n.Denied != 0 {
		t.Errorf("counters of an edge that drains: %+v", n)
	}
	c.set(func() { c.edges["b"].draining = false })
	c.awaitLegs(a, 3)
	c.set(func() { c.edges["a"].draining = true })
	c.stop("a") // that of the first leg
	wait.Until(t, "the end of the first leg", func() bool { return len(a.Status().Legs) == 2 })
	c.awaitLegs(a, 2)
}

// TestNotAt: each edge learns to which edges the connector has no tunnel, why, and when it has one again.
func TestNotAt(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b")
	a := c.startLegs(answerWith(t, "x"), func(i *instance) { hasty(i); i.notAtAfter = 50 * time.Millisecond })
	c.awaitLegs(a, 2)
	notAt := func() []tunnel.NotAt { return c.edges["a"].Sessions()[0].NotAt }
	if list := notAt(); len(list) > 0 {
		t.Errorf("with all tunnels: %+v", list)
	}
	c.kill("b")
	wait.Until(t, "the report", func() bool { return len(notAt()) == 1 })
	n := notAt()[0]
	without := time.Since(n.Since)
	if n.Edge != "b" || n.Reason == "" || without < 50*time.Millisecond || without > time.Minute {
		t.Errorf("reported: %+v", n)
	}
	wait.Until(t, "the leg without a tunnel", func() bool {
		legs := a.Status().Legs
		return len(legs) == 2 && legs[1].Edge == "b" && legs[1].Tunnel == nil && legs[1].Problem != nil
	})
	c.start("b")
	c.changed()
	wait.Until(t, "the report of the new tunnel", func() bool { return len(notAt()) == 0 })
	c.awaitLegs(a, 2)
}

// TestReloadWhileDraining: a new limit applies without another edge.
func TestReloadWhileDraining(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a")
	a := c.startLegs(answerWith(t, "x"), nil)
	c.awaitLegs(a, 1)
	c.set(func() { c.edges["a"].draining = true })
	wait.Until(t, "the news", func() bool { edges, _ := a.current.Load().knownEdges(); return len(edges) == 0 })
	next := config.Config{
		TunnelToken: c.token.Encode(), Transport: config.TransportQUIC, MaxRequests: 7,
		Upstreams: map[string]config.Upstream{
			"box": {BaseURL: answerWith(t, "y") + "/v1"},
		},
	}
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the limit", func() bool { s := c.edges["a"].Sessions(); return len(s) == 1 && s[0].Limit == 7 })
	c.answers("a", "y")
	if log := a.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("log %s", log)
	}
}

// TestBalancerLeadsToTheSameEdge: the second tunnel does not replace the first one.
func TestBalancerLeadsToTheSameEdge(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b")
	address := c.edges["b"].address
	c.set(func() { c.edges["b"].address = c.edges["a"].address })
	a := c.startLegs(answerWith(t, "x"), nil)
	wait.Until(t, "a refusal", func() bool { return c.edges["a"].Counters().Denied >= 2 })
	wait.Until(t, "the reason", func() bool {
		legs := a.Status().Legs
		return len(legs) == 2 && legs[1].Problem != nil && strings.Contains(legs[1].Problem.String(), "led to another edge")
	})
	if n := c.edges["a"].Counters(); n.Connected != 1 || n.Replaced != 0 {
		t.Errorf("counters %+v", n)
	}
	c.answers("a", "x")
	if log := a.log.String(); strings.Contains(log, link.DenyEdgeInUse) {
		t.Errorf("log %s", log)
	}
	c.set(func() { c.edges["b"].address = address })
	c.awaitLegs(a, 2)
}

// TestLegsOverWebSockets: without UDP, a balancer sometimes leads the second tunnel to the edge
// of the first one.
func TestLegsOverWebSockets(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b")
	var requests atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := []string{"a", "b"}[(requests.Add(1)-1)/2%2] // two to each
		c.edges[name].ServeWebSocket(w, r)
	}))
	t.Cleanup(web.Close)
	c.token.URL = web.URL
	g := &fakeGateway{t: t, token: c.token, transport: config.TransportWebSocket}
	a := startAgent(t, g, answerWith(t, "x"), nil)
	for _, name := range c.awaitLegs(a, 2) {
		c.answers(name, "x")
	}
	for _, e := range c.edges {
		if n := e.Counters(); n.Connected != 1 || n.Replaced != 0 {
			t.Errorf("counters of %s: %+v", e.name, n)
		}
	}
	if n := c.edges["a"].Counters().Denied; n != 1 {
		t.Errorf("%d hellos were denied", n)
	}
}

// TestReloadOverLegs: new upstreams and a new limit reach both edges, with new tunnels.
func TestReloadOverLegs(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b", "c")
	a := c.startLegs(answerWith(t, "old"), nil)
	names := c.awaitLegs(a, 3)
	next := config.Config{
		TunnelToken: c.token.Encode(), Transport: config.TransportQUIC,
		Upstreams: map[string]config.Upstream{
			"bix": {BaseURL: answerWith(t, "new") + "/v1"},
		},
	}
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	all := func(ok func(upstreams []string, limit int) bool) func() bool {
		return func() bool {
			n := 0
			for _, hub := range c.hubs() {
				for _, s := range hub.Sessions() {
					if ok(s.Upstreams, s.Limit) {
						n++
					}
				}
			}
			return n == 3
		}
	}
	wait.Until(t, "the upstreams at both edges",
		all(func(upstreams []string, _ int) bool { return slices.Equal(upstreams, []string{"bix"}) }))
	if got := c.awaitLegs(a, 3); !slices.Equal(got, names) {
		t.Errorf("tunnels to %v", got)
	}
	next.MaxRequests = 7
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the limit at both edges", all(func(_ []string, limit int) bool { return limit == 7 }))
	if log := a.log.String(); strings.Contains(log, "disconnected") || strings.Contains(log, "level=ERROR") {
		t.Errorf("log %s", log)
	}

	c.awaitLegs(a, 3)
	last := a.Status().Legs[1].Edge
	for name := range c.edges {
		if name != last {
			c.stop(name)
		}
	}
	c.awaitLegs(a, 1)
	next.Upstreams = map[string]config.Upstream{"box": {BaseURL: answerWith(t, "newest") + "/v1"}}
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the upstream at the last edge", func() bool {
		s := c.edges[last].Sessions()
		return len(s) == 1 && slices.Equal(s[0].Upstreams, []string{"box"})
	})
	c.answers(last, "newest")
}

// TestReloadToAnotherCluster: both legs move.
func TestReloadToAnotherCluster(t *testing.T) {
	t.Parallel()
	from, to := startEdges(t, "a", "b"), startEdges(t, "a", "b")
	to.token.Connector = strings.Replace(to.token.Connector, "aa", "bb", 1)
	a := from.startLegs(answerWith(t, "x"), nil)
	from.awaitLegs(a, 2)
	c := config.Config{
		TunnelToken: to.token.Encode(), Transport: config.TransportQUIC,
		Upstreams: map[string]config.Upstream{
			"box": {BaseURL: answerWith(t, "y") + "/v1"},
		},
	}
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	to.awaitLegs(a, 2)
	wait.Until(t, "the end of the old tunnels", func() bool { return len(from.at()) == 0 })
	to.answers("a", "y")
	to.answers("b", "y")

	alone := startEdges(t, "a")
	alone.alone = true
	alone.stop("a")
	alone.start("a")
	c.TunnelToken = alone.token.Encode()
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "a single tunnel",
		func() bool { return len(to.at()) == 0 && len(alone.at()) == 1 && len(a.Status().Legs) == 0 })
}

// TestRemovedWithLegs: a removed connector stops, whichever leg notices it.
func TestRemovedWithLegs(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b")
	a := c.startLegs(answerWith(t, "x"), nil)
	c.awaitLegs(a, 2)
	c.edges["b"].Disconnect(c.token.Connector, link.CloseRemoved)
	err := wait.For(t, a.result, "the agent's end")
	if err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("ended with %v", err)
	}
	if s := a.Status(); s.State != StateStopped || s.Problem == nil {
		t.Errorf("status %+v", s)
	}
}

// TestEdgesDuringAPause: a leg gets the list of edges while the first one counts a failure.
func TestEdgesDuringAPause(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a")
	a := c.startLegs(answerWith(t, "x"), nil)
	c.awaitLegs(a, 1)
	first, counted := a.allLegs()[0], make(chan struct{})
	go func() {
		defer close(counted)
		first.retry.pause(ending{err: errors.New("failed")})
	}()
	a.useEdges([]link.Edge{{Name: "a", Server: c.edges["a"].address}, {Name: "b", Server: "localhost:1"}}, time.Hour)
	<-counted
}

// TestOtherEdgesTakeOver: five edges drain, and keep the tunnels, while five others start.
func TestOtherEdgesTakeOver(t *testing.T) {
	t.Parallel()
	former, next := []string{"a", "b", "c", "d", "e"}, []string{"f", "g", "h", "i", "j"}
	c := startEdges(t, former...)
	a := c.startLegs(answerWith(t, "x"), nil)
	c.awaitLegs(a, 5)
	c.set(func() {
		for _, name := range former {
			c.edges[name].draining = true
		}
		for _, name := range next {
			c.edges[name] = &testEdge{name: name, address: freeAddr(t)}
		}
	})
	for _, name := range next {
		c.start(name)
	}
	c.awaitLegs(a, 10)
	if log := a.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("log %s", log)
	}
}

// TestWebSocketLeadsAway: while an edge answers slowly over QUIC, a balancer leads the WebSocket to another one. That
// refuses it, which ends no attempt over QUIC. The reason for other edges is that of QUIC, too.
func TestWebSocketLeadsAway(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b")
	c.set(func() { c.edges["b"].draining = true }) // no leg of the agent dials it
	a := c.startLegs(answerWith(t, "x"), nil)
	c.awaitLegs(a, 1)
	l := &leg{instance: a.instance}
	to := func(name string) dial.Runner {
		return dial.Runner{Dial: a.config.quicTo(link.Edge{Server: c.edges[name].address}).Dial}
	}
	slow := dial.Runner{Dial: func(ctx context.Context) (*link.Conn, error) {
		wait.Until(t, "the refusal", func() bool { return c.edges["a"].Counters().Denied > 0 })
		return to("b").Dial(ctx)
	}}
	s, err := l.race(t.Context(), t.Context(), nil, []dial.Runner{slow, to("a")})
	if err != nil || s.welcome.Edge != "b" {
		t.Fatalf("a tunnel to %q, %v", s.welcome.Edge, err)
	}
	silent := dial.Runner{Dial: func(context.Context) (*link.Conn, error) { return nil, dial.ErrSilent }}
	_, err = l.race(t.Context(), t.Context(), nil, []dial.Runner{silent, to("a")})
	if reason, fix := Explain(err); !strings.Contains(reason, dial.ErrSilent.Error()) ||
		!strings.Contains(reason, "led to another edge") || fix == "" {
		t.Errorf("reason %q, fix %q", reason, fix)
	}
	s.close(link.CloseNone, nil)
}
