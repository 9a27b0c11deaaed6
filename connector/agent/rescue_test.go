package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// flood sends lines as fast as the client reads, until its request ends.
func flood(t *testing.T) string {
	t.Helper()
	return serveModel(t, func(w http.ResponseWriter, r *http.Request) {
		for i := 0; r.Context().Err() == nil; i++ {
			fmt.Fprintf(w, "%d %s\n", i, strings.Repeat("x", 100))
			if i%20 == 0 {
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		}
	}).URL
}

// counter checks the lines of a flood.
type counter struct {
	lines *bufio.Scanner
	next  int
}

// read reads n lines.
func (c *counter) read(n int) error {
	for range n {
		if !c.lines.Scan() {
			return fmt.Errorf("the stream ended after %d lines: %w", c.next, c.lines.Err())
		}
		if !strings.HasPrefix(c.lines.Text(), fmt.Sprintf("%d x", c.next)) {
			return fmt.Errorf("line %d is %.20q", c.next, c.lines.Text())
		}
		c.next++
	}
	return nil
}

// openFlood begins to read a flood through the gateway.
func (g *realGateway) openFlood(t *testing.T) *counter {
	t.Helper()
	s, err := g.Wait(t.Context(), g.token.Connector, patience)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.RoundTrip(post(t.Context(), "{}"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return &counter{lines: bufio.NewScanner(answer.Body)}
}

// TestBlackoutUnderLoad: the path is dead until the tunnel counts as silent and the congestion
// window is full. The stream continues on the same tunnel.
func TestBlackoutUnderLoad(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	a := startFlood(t, g, func(a *Agent) { a.rescueMoment = forever })
	a.answered(t)
	before := g.Counters().Connected
	c := g.openFlood(t)
	if err := c.read(2000); err != nil {
		t.Fatal(err)
	}
	g.relay.blocked.Store(true)
	wait.Until(t, "the silence to be noticed", func() bool { return a.Status().State == StateConnecting })
	if s := a.Status(); s.Problem == nil || s.Running != 1 {
		t.Errorf("in the silence: %+v, problem %+v", s, s.Problem)
	}
	g.relay.blocked.Store(false)
	// These are more lines than were in flight before.
	if err := c.read(20_000); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the state", func() bool { return a.Status().State == StateOnline })
	if n := g.Counters(); n.Connected != before || n.Replaced != 0 || a.Status().Tunnels != before {
		t.Errorf("%+v, %d tunnels; %d before", n, a.Status().Tunnels, before)
	}
}

// startFlood is startReal with a flood, over QUIC only.
func startFlood(t *testing.T, g *realGateway, change func(*Agent)) *runningAgent {
	t.Helper()
	return startReal(t, g, func(a *Agent) {
		noticesSoon(a)
		change(a)
		a.current.transport = config.TransportQUIC
		a.serve(t, flood(t))
	})
}

// noticesSoon makes an agent notice silence in a third of the time. On a slow machine it
// may leave tunnels before their first pong: see answered.
func noticesSoon(a *Agent) { a.pongTimeout, a.silenceLimit = pongTimeout/3, silenceLimit }

// answered waits for a tunnel that has had a pong. A later silence does not end it at once.
func (a *runningAgent) answered(t *testing.T) {
	t.Helper()
	wait.Until(t, "a tunnel with a pong", func() bool {
		a.monitor.mu.Lock()
		defer a.monitor.mu.Unlock()
		return a.legs[0].phase.tunnel != nil && a.legs[0].phase.tunnel.answered.Load()
	})
}

// serve replaces the upstream.
func (a *Agent) serve(t *testing.T, address string) {
	t.Helper()
	set, err := upstream.Open(&config.Config{Upstreams: map[string]config.Upstream{"box": {BaseURL: address + "/v1"}}},
		nil, a.Logger)
	if err != nil {
		t.Fatal(err)
	}
	a.current.proxy.Use(set)
}

// TestDeadPathIsReplaced: the path of the tunnel dies for good, while other paths lead to the
// gateway. New requests soon use another tunnel. Each side gives up the old one by its own
// clock, when it cannot come back.
func TestDeadPathIsReplaced(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	a := startFlood(t, g, func(a *Agent) { a.silenceLimit = silenceLimit / 3 })
	a.answered(t)
	before := g.Counters().Connected
	c := g.openFlood(t)
	if err := c.read(2000); err != nil {
		t.Fatal(err)
	}
	g.relay.strand()
	start := time.Now()
	wait.Until(t, "another tunnel", func() bool { return g.Counters().Connected > before })
	a.answered(t)
	if err := g.openFlood(t).read(10); err != nil {
		t.Error(err)
	}
	if log := a.log.String(); !strings.Contains(log, `level=WARN msg="another tunnel replaces the silent one" session=`) {
		t.Errorf("log %s", log)
	}
	wait.Until(t, "the end of the old tunnel's request", func() bool { return a.Status().Running == 1 })
	if took := time.Since(start); took < a.silenceLimit*2/3 {
		t.Errorf("the connector gave the old tunnel up after %v", took)
	}
	if !testing.Short() {
		if err := c.read(1_000_000); err == nil {
			t.Error("the stream goes on over a dead path")
		}
		if took := time.Since(start); took < 20*time.Second {
			t.Errorf("the gateway gave the old tunnel up after %v", took)
		}
	}
	if err := g.openFlood(t).read(10); err != nil {
		t.Error(err)
	}
}

// TestBlackoutOutlastsTheMoment: a new connection sends a hello, but the old tunnel comes back.
// Its requests finish there.
func TestBlackoutOutlastsTheMoment(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	a := startFlood(t, g, func(a *Agent) { a.pongTimeout = pongTimeout })
	a.answered(t)
	before := g.Counters().Connected
	c := g.openFlood(t)
	if err := c.read(2000); err != nil {
		t.Fatal(err)
	}
	g.relay.strand()
	wait.Until(t, "another tunnel", func() bool { return g.Counters().Connected > before })
	a.answered(t)
	now := g.Counters().Connected
	g.relay.rejoin()
	if err := c.read(20_000); err != nil {
		t.Fatal(err)
	}
	if err := g.openFlood(t).read(10); err != nil {
		t.Error(err)
	}
	if n := g.Counters(); n.Connected != now || n.Replaced != 0 || n.Failed != 0 {
		t.Errorf("%+v, with %d tunnels before", n, now)
	}
}

// silence is a tunnel whose pings are not answered, with the connection that may replace it.
type silence struct {
	*fakeGateway
	agent  *runningAgent
	old    *fakeSession
	beside *quic.Conn
	since  time.Time
	before int // hellos
}

// fallSilent starts an agent and makes its gateway stop answering pings. It returns when
// another connection is up, which waits for the silent tunnel.
func fallSilent(t *testing.T, moment, limit time.Duration) *silence {
	t.Helper()
	g := startGateway(t)
	x := &silence{fakeGateway: g}
	x.agent = startAgent(t, g, answerWith(t, "x"), func(a *Agent) {
		a.pongTimeout, a.silenceLimit, a.rescueMoment = time.Second, limit, moment
	})
	x.old = g.lively()
	conns := 0
	g.set(func() { g.silent, x.since, x.before, conns = true, time.Now(), g.hellos, len(g.conns) })
	wait.Until(t, "another connection", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.conns) > conns {
			x.beside = g.conns[conns]
		}
		return x.beside != nil
	})
	return x
}

// TestRequestOnItsWayInABlackout: a request that the gateway sends before it notices the silence
// fails when two pings are overdue. It is not sent on the tunnel that replaces the silent one.
func TestRequestOnItsWayInABlackout(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	a := startReal(t, g, noticesSoon)
	a.answered(t)
	g.mustAsk(t)
	g.relay.blocked.Store(true)
	answered := make(chan error, 1)
	go func() { answered <- g.ask(t.Context()) }()
	wait.Until(t, "a tunnel over a WebSocket", func() bool { return g.transport() == link.TransportWebSocket })
	a.answered(t)
	now := g.Counters().Connected
	g.mustAsk(t)
	if err := <-answered; !errors.Is(err, link.ErrSilent) {
		t.Errorf("the request in the silence: %v", err)
	}
	g.relay.blocked.Store(false)
	g.mustAsk(t)
	if n := g.Counters(); n.Connected != now || n.Failed != 1 {
		t.Errorf("%+v, with %d tunnels before", n, now)
	}
}

// TestSilentTunnelComesBack: if a gateway answers again while the new connection waits, it gets
// no hello there, as a hello would end the tunnel.
func TestSilentTunnelComesBack(t *testing.T) {
	t.Parallel()
	x := fallSilent(t, forever, 2*forever)
	x.set(func() { x.silent = false })
	wait.For(t, x.beside.Context().Done(), "the end of the new connection")
	if got := x.old.ask(t); got != "x" {
		t.Errorf("the tunnel answers %q", got)
	}
	if n := x.count(); n != x.before || x.old.conn.Context().Err() != nil {
		t.Errorf("%d hellos after %d; the tunnel ended with %v", n, x.before, context.Cause(x.old.conn.Context()))
	}
	wait.Until(t, "the log of that",
		func() bool { return strings.Contains(x.agent.log.String(), "the gateway answers again") })
}

// TestSilentTunnelHadItsMoment: after the wait, the new connection sends a hello that names the
// old tunnel. If the old tunnel stays silent, it is closed, at once if it has no requests.
func TestSilentTunnelHadItsMoment(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"idle": false, "with a request": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = 8 * time.Second
			x := fallSilent(t, limit/10, limit)
			var begun *http.Response
			if busy {
				x.agent.serve(t, flood(t))
				answer, err := x.old.roundTrip(post(t.Context(), "{}"))
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				begun = answer
			}
			next := x.session()
			if x.old.hello.KeepSilent || !next.hello.KeepSilent || next.hello.Instance != x.old.hello.Instance {
				t.Errorf("hellos %v, %v", x.old.hello.KeepSilent, next.hello.KeepSilent)
			}
			if busy {
				if err := (&counter{lines: bufio.NewScanner(begun.Body)}).read(100); err != nil {
					t.Error(err)
				}
			}
			wait.For(t, x.old.conn.Context().Done(), "the end of the silent tunnel")
			if took := time.Since(x.since); took < limit/2 { // requests may be on their way
				t.Errorf("it ended after %v", took)
			}
			if code, ok := link.CloseReason(context.Cause(x.old.conn.Context())); !ok || code != link.CloseLost {
				t.Errorf("it was closed with %v", context.Cause(x.old.conn.Context()))
			}
		})
	}
}

// TestEndInSilence: the agent does not wait for a silent tunnel without requests.
func TestEndInSilence(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *Agent) { a.pongTimeout, a.DrainTimeout = pongTimeout/3, forever })
	g.lively()
	g.set(func() { g.silent = true })
	a.stop() // before the silence is noticed
	if err := wait.For(t, a.result, "the agent's end"); err != nil {
		t.Error(err)
	}
}

// TestSilentTunnelEnds while the new connection waits: the hello is sent at once, unless the
// connector was removed or replaced.
func TestSilentTunnelEnds(t *testing.T) {
	t.Parallel()
	x := fallSilent(t, forever, 2*forever)
	x.set(func() { x.silent = false })
	x.old.close(link.CloseLost)
	if next := x.session(); next.hello.KeepSilent {
		t.Error("it reports another tunnel")
	}
	x = fallSilent(t, forever, 2*forever)
	x.old.close(link.CloseReplaced)
	wait.Until(t, "the reason", func() bool {
		return strings.Contains(x.agent.log.String(), "another connector runs with the same tunnel token")
	})
	if n := x.count(); n != x.before {
		t.Errorf("%d hellos after %d", n, x.before)
	}
}

// TestNeverHeard: a gateway that sends a welcome and then never answers is left at once, with
// growing pauses.
func TestNeverHeard(t *testing.T) {
	g := startGateway(t)
	g.set(func() { g.silent = true })
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *Agent) { a.pongTimeout = 50 * time.Millisecond })
	s := g.session()
	wait.For(t, s.conn.Context().Done(), "the end of the tunnel")
	g.session()
	if log := a.log.String(); !strings.Contains(log, "retry_in") || strings.Contains(log, "dialing a second connection") {
		t.Errorf("log %s", log)
	}
}

// TestAnotherGatewayBesideASilentTunnel: a gateway that lost its storage does not know the
// tunnel, and cannot report that. The reason is reported at once.
func TestAnotherGatewayBesideASilentTunnel(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1",
		func(a *Agent) { a.pongTimeout, a.silenceLimit = 500*time.Millisecond, time.Second })
	g.lively()
	giveBack := g.otherIdentity()
	wait.Until(t, "the reason", func() bool {
		p := a.Status().Problem
		return p != nil && strings.Contains(p.Reason, link.ErrPin.Error()) && strings.Contains(p.Fix, "lost its storage")
	})
	wait.Until(t, "the end of the silent tunnel",
		func() bool { return strings.Contains(a.log.String(), "msg=disconnected") })
	giveBack()
	g.sessionAfterWaking(a)
}
