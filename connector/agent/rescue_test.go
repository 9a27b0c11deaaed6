package agent

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/upstream"
)

// flood answers with lines, as fast as they are taken, until its request ends.
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

// counter reads the lines of a flood.
type counter struct {
	lines *bufio.Scanner
	next  int
}

// read reads so many lines.
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
	s, err := g.Wait(t.Context(), g.token.Connector, 10*time.Second)
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

// TestBlackoutUnderLoad: the path is dead for so long that the tunnel counts as silent,
// and the congestion window is full. The stream goes on, on the same tunnel.
func TestBlackoutUnderLoad(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	a := startFlood(t, g)
	c := g.openFlood(t)
	if err := c.read(2000); err != nil { // it takes longer than the first pong
		t.Fatal(err)
	}
	g.relay.blocked.Store(true)
	eventually(t, "the silence to be noticed", func() bool { return a.Status().State == StateConnecting })
	if s := a.Status(); s.Problem == nil || s.Running != 1 {
		t.Errorf("in the silence: %+v, problem %+v", s, s.Problem)
	}
	g.relay.blocked.Store(false)
	start := time.Now()
	// More than can have been on its way before.
	if err := c.read(20_000); err != nil {
		t.Fatal(err)
	}
	t.Logf("the stream went on, 20,000 lines within %v", time.Since(start).Round(10*time.Millisecond))
	eventually(t, "the state", func() bool { return a.Status().State == StateOnline })
	if n := g.Counters(); n.Connected != 1 || n.Replaced != 0 || a.Status().Tunnels != 1 {
		t.Errorf("%+v, %d tunnels", n, a.Status().Tunnels)
	}
}

// startFlood is startReal with a flood, on QUIC alone.
func startFlood(t *testing.T, g *realGateway) *runningAgent {
	t.Helper()
	return startReal(t, g, func(a *Agent) {
		noticesSoon(a)
		a.current.transport = config.TransportQUIC
		a.serve(t, flood(t))
	})
}

// noticesSoon makes an agent notice silence in a third of the time.
func noticesSoon(a *Agent) { a.pongTimeout, a.silenceLimit = pongTimeout/3, silenceLimit/3 }

// serve replaces the upstream.
func (a *Agent) serve(t *testing.T, address string) {
	t.Helper()
	set, err := upstream.Open(&config.Config{Upstreams: map[string]config.Upstream{"box": {BaseURL: address + "/v1"}}}, nil, a.Logger)
	if err != nil {
		t.Fatal(err)
	}
	a.current.proxy.Use(set)
}

// TestDeadPathIsReplaced: the path of the tunnel is dead for good, while others
// lead to the gateway. New requests go there soon; the old one is given up when
// it cannot come back, on each side by its own clock.
func TestDeadPathIsReplaced(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	a := startFlood(t, g)
	c := g.openFlood(t)
	if err := c.read(2000); err != nil {
		t.Fatal(err)
	}
	g.relay.strand()
	start := time.Now()
	eventually(t, "another tunnel", func() bool { return g.Counters().Connected == 2 })
	t.Logf("another tunnel after %v", time.Since(start).Round(10*time.Millisecond))
	if err := g.openFlood(t).read(10); err != nil {
		t.Error(err)
	}
	if log := a.log.String(); !strings.Contains(log, `level=WARN msg="another tunnel replaces the silent one" session=`) {
		t.Errorf("log %s", log)
	}
	soon(t, "the end of the old tunnel's request", func() bool { return a.Status().Running == 1 })
	if took := time.Since(start); took < a.silenceLimit*2/3 {
		t.Errorf("the connector gave the old tunnel up after %v", took)
	}
	if !testing.Short() {
		if err := c.read(1_000_000); err == nil {
			t.Error("the stream goes on over a dead path")
		}
		if took := time.Since(start); took < 20*time.Second || took > time.Minute {
			t.Errorf("the gateway gave the old tunnel up after %v", took)
		}
	}
	if err := g.openFlood(t).read(10); err != nil {
		t.Error(err)
	}
}

// TestBlackoutOutlastsTheMoment: a new connection sends a hello, and the old tunnel
// comes back all the same. Its requests finish there.
func TestBlackoutOutlastsTheMoment(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	startFlood(t, g)
	c := g.openFlood(t)
	if err := c.read(2000); err != nil {
		t.Fatal(err)
	}
	g.relay.strand()
	eventually(t, "another tunnel", func() bool { return g.Counters().Connected == 2 })
	g.relay.rejoin()
	if err := c.read(20_000); err != nil {
		t.Fatal(err)
	}
	if err := g.openFlood(t).read(10); err != nil {
		t.Error(err)
	}
	if n := g.Counters(); n.Connected != 2 || n.Replaced != 0 || n.Failed != 0 {
		t.Errorf("%+v", n)
	}
}

// fallSilent starts an agent and makes its gateway stop answering pings. It
// returns when another connection is there, which waits for a moment.
func fallSilent(t *testing.T, moment, limit time.Duration) (*fakeGateway, *fakeSession, *runningAgent) {
	t.Helper()
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "x"), func(a *Agent) {
		a.pongTimeout, a.silenceLimit, a.rescueMoment = 200*time.Millisecond, limit, moment
	})
	s := g.session()
	eventually(t, "pings", func() bool { return s.pings.Load() >= 3 })
	g.set(func() { g.silent = true })
	eventually(t, "another connection", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.conns) == 2
	})
	return g, s, a
}

// TestRequestOnItsWayInABlackout: what the gateway sent into the silence, before it
// knew of that, arrives when the path is back, although another tunnel has taken
// the place of the one that it is for.
func TestRequestOnItsWayInABlackout(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	startReal(t, g, noticesSoon)
	g.mustAsk(t)
	g.relay.blocked.Store(true)
	answered := make(chan error, 1)
	go func() { answered <- g.ask(t.Context()) }()
	eventually(t, "a tunnel over a WebSocket", func() bool { return g.transport() == link.TransportWebSocket })
	g.mustAsk(t)
	select {
	case err := <-answered:
		t.Fatalf("the request in the silence: %v", err)
	default:
	}
	g.relay.blocked.Store(false)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if n := g.Counters(); n.Connected != 2 || n.Failed != 0 {
		t.Errorf("%+v", n)
	}
}

// TestSilentTunnelComesBack: a gateway that answers again in the moment of the
// new connection gets no hello on that, which would cut the tunnel.
func TestSilentTunnelComesBack(t *testing.T) {
	t.Parallel()
	g, s, a := fallSilent(t, time.Minute, 10*time.Second)
	g.set(func() { g.silent = false })
	g.mu.Lock()
	beside := g.conns[1]
	g.mu.Unlock()
	receive(t, beside.Context().Done(), "the end of the new connection")
	if got := s.ask(t); got != "x" {
		t.Errorf("the tunnel answers %q", got)
	}
	if n := g.count(); n != 1 || s.conn.Context().Err() != nil {
		t.Errorf("%d hellos; the tunnel ended with %v", n, context.Cause(s.conn.Context()))
	}
	eventually(t, "the log of that", func() bool { return strings.Contains(a.log.String(), "the gateway answers again") })
}

// TestSilentTunnelHadItsMoment: then the new connection sends a hello, and that
// there is an old one, which is closed when it stays silent: at once if there is
// nothing to wait for.
func TestSilentTunnelHadItsMoment(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"idle": false, "with a request": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const limit = 4 * time.Second
			g, s, a := fallSilent(t, limit/10, limit)
			if n := g.count(); n != 1 {
				t.Errorf("%d hellos at once", n)
			}
			var begun *http.Response
			if busy {
				a.serve(t, flood(t))
				answer, err := s.roundTrip(post(t.Context(), "{}"))
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				begun = answer
			}
			start := time.Now()
			next := g.session()
			if s.hello.Beside || !next.hello.Beside || next.hello.Instance != s.hello.Instance {
				t.Errorf("hellos %v, %v", s.hello.Beside, next.hello.Beside)
			}
			if busy {
				if err := (&counter{lines: bufio.NewScanner(begun.Body)}).read(2000); err != nil {
					t.Error(err)
				}
			}
			receive(t, s.conn.Context().Done(), "the end of the silent tunnel")
			if took := time.Since(start); took < limit/2 { // requests may be on their way
				t.Errorf("it ended after %v", took)
			}
			if code, ok := link.CloseReason(context.Cause(s.conn.Context())); !ok || code != link.CloseLost {
				t.Errorf("it was closed with %v", context.Cause(s.conn.Context()))
			}
		})
	}
}

// TestEndInSilence: the agent does not wait for a silent tunnel without requests.
func TestEndInSilence(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *Agent) { a.pongTimeout = pongTimeout / 3 })
	s := g.session()
	eventually(t, "pings", func() bool { return s.pings.Load() >= 3 })
	g.set(func() { g.silent = true })
	a.stop() // before the silence is noticed
	if err := receive(t, a.result, "the agent's end"); err != nil {
		t.Error(err)
	}
}

// TestSilentTunnelEnds while the new connection waits: there is nothing more to
// wait for, unless the connector is not wanted.
func TestSilentTunnelEnds(t *testing.T) {
	t.Parallel()
	g, s, _ := fallSilent(t, time.Minute, 10*time.Second)
	g.set(func() { g.silent = false })
	s.close(link.CloseLost)
	if next := g.session(); next.hello.Beside {
		t.Error("it reports another tunnel")
	}
	g, s, a := fallSilent(t, time.Minute, 10*time.Second)
	s.close(link.CloseReplaced)
	eventually(t, "the reason", func() bool {
		return strings.Contains(a.log.String(), "another connector runs with the same tunnel token")
	})
	if n := g.count(); n != 1 {
		t.Errorf("%d hellos", n)
	}
}

// TestNeverHeard: a gateway that welcomes and then never answers is left at once,
// and with growing pauses.
func TestNeverHeard(t *testing.T) {
	g := startGateway(t)
	g.set(func() { g.silent = true })
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *Agent) { a.pongTimeout = 50 * time.Millisecond })
	s := g.session()
	receive(t, s.conn.Context().Done(), "the end of the tunnel")
	g.session()
	if log := a.log.String(); !strings.Contains(log, "retry_in") || strings.Contains(log, "beside the tunnel") {
		t.Errorf("log %s", log)
	}
}

// TestAnotherGatewayBesideASilentTunnel: a gateway that lost its storage knows
// nothing of the tunnel, and cannot even report that. The reason is reported at once.
func TestAnotherGatewayBesideASilentTunnel(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *Agent) { a.pongTimeout, a.silenceLimit = 200*time.Millisecond, time.Second })
	s := g.session()
	eventually(t, "pings", func() bool { return s.pings.Load() >= 3 })
	giveBack := g.otherIdentity()
	eventually(t, "the reason", func() bool {
		p := a.Status().Problem
		return p != nil && strings.Contains(p.Reason, link.ErrPin.Error()) && strings.Contains(p.Fix, "lost its storage")
	})
	eventually(t, "the end of the silent tunnel", func() bool { return strings.Contains(a.log.String(), "msg=disconnected") })
	giveBack()
	g.sessionAfterWaking(a)
}
