package agent

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// flood answers with lines, as fast as they are taken, until its request ends.
func flood(t *testing.T) string {
	t.Helper()
	return serveBox(t, func(w http.ResponseWriter, r *http.Request) {
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

// TestBlackoutUnderLoad: the path is dead for so long that QUIC itself would
// probe it only seconds after its return, and the congestion window is full, so
// that nothing else can. The stream goes on, on the same tunnel.
func TestBlackoutUnderLoad(t *testing.T) {
	g := startRealGateway(t)
	a := startFlood(t, g)
	c := g.openFlood(t)
	if err := c.read(2000); err != nil { // it takes longer than the first pong
		t.Fatal(err)
	}
	g.relay.blocked.Store(true)
	time.Sleep(9 * time.Second)
	if s := a.Status(); s.State != StateConnecting || s.Problem == nil || s.Running != 1 {
		t.Errorf("in the silence: %+v, problem %+v", s, s.Problem)
	}
	g.relay.blocked.Store(false)
	start := time.Now()
	// More than can have been on its way before.
	if err := c.read(100_000); err != nil {
		t.Fatal(err)
	}
	t.Logf("the stream went on, 100,000 lines within %v", time.Since(start).Round(10*time.Millisecond))
	eventually(t, "the state to be told", func() bool { return a.Status().State == StateOnline })
	if n := g.Counters(); n.Connected != 1 || n.Replaced != 0 || a.Status().Tunnels != 1 {
		t.Errorf("%+v, %d tunnels", n, a.Status().Tunnels)
	}
}

// startFlood is startReal with a flood, on QUIC alone.
func startFlood(t *testing.T, g *realGateway) *runningAgent {
	t.Helper()
	return startReal(t, g, func(a *Agent) {
		a.transport = TransportQUIC
		base, err := fullBase(flood(t) + "/v1")
		if err != nil {
			t.Fatal(err)
		}
		a.proxy.upstreams.Store(&map[string]*upstream{"box": newUpstream("box", base, nil)})
	})
}

// TestDeadPathIsReplaced: the path of the tunnel is dead for good, while others
// lead to the gateway.
func TestDeadPathIsReplaced(t *testing.T) {
	g := startRealGateway(t)
	a := startFlood(t, g)
	c := g.openFlood(t)
	if err := c.read(2000); err != nil { // it takes longer than the first pong
		t.Fatal(err)
	}
	g.relay.strand()
	start := time.Now()
	if err := c.read(1_000_000); err == nil {
		t.Fatal("the stream goes on over a dead path")
	}
	t.Logf("replaced after %v", time.Since(start).Round(10*time.Millisecond))
	if n := g.Counters(); n.Connected != 2 || n.Replaced != 1 {
		t.Errorf("%+v", n)
	}
	c = g.openFlood(t)
	if err := c.read(10); err != nil {
		t.Error(err)
	}
	if log := a.log.String(); !strings.Contains(log, `level=WARN msg=disconnected reason="the gateway does not answer pings" session=`) {
		t.Errorf("log %s", log)
	}
}

// fallSilent starts an agent and makes its gateway answer no pings any more. It
// returns when another connection is there.
func fallSilent(t *testing.T) (*fakeGateway, *fakeSession, *runningAgent) {
	t.Helper()
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "x"), func(a *Agent) { a.pongTimeout = 200 * time.Millisecond })
	s := g.session()
	eventually(t, "it to have heard of the gateway", func() bool { return s.pings.Load() >= 3 })
	g.set(func() { g.silent = true })
	eventually(t, "another connection", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.conns) == 2
	})
	return g, s, a
}

// TestSilentTunnelComesBack: a gateway that is heard again in the moment of the
// new connection gets no hello on that, which would cut the tunnel.
func TestSilentTunnelComesBack(t *testing.T) {
	g, s, a := fallSilent(t)
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
	if log := a.log.String(); !strings.Contains(log, "the gateway is heard again") {
		t.Errorf("log %s", log)
	}
}

// TestSilentTunnelHadItsMoment: then the new connection says hello, and the old
// one is closed.
func TestSilentTunnelHadItsMoment(t *testing.T) {
	g, s, _ := fallSilent(t)
	start := time.Now()
	if n := g.count(); n != 1 {
		t.Errorf("%d hellos at once", n)
	}
	receive(t, s.conn.Context().Done(), "the end of the silent tunnel")
	if took := time.Since(start); took < rescueMoment/2 {
		t.Errorf("it had a moment of %v", took)
	}
	if code, ok := link.CloseReason(context.Cause(s.conn.Context())); !ok || code != link.CloseLost {
		t.Errorf("it was closed with %v", context.Cause(s.conn.Context()))
	}
	g.set(func() { g.silent = false })
	if got := g.session().ask(t); got != "x" {
		t.Errorf("the new one answers %q", got)
	}
}

// TestSilentTunnelEnds while the new connection waits: there is nothing more to
// wait for, unless the connector is not wanted.
func TestSilentTunnelEnds(t *testing.T) {
	g, s, _ := fallSilent(t)
	g.set(func() { g.silent = false })
	s.close(link.CloseLost)
	g.session()
	g, s, a := fallSilent(t)
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
