package agent

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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
	s, err := g.session(t.Context())
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

// startFlood is startReal with a flood, over QUIC only.
func startFlood(t *testing.T, g *realGateway) *runningAgent {
	t.Helper()
	return startReal(t, g, func(a *instance) {
		a.config.transport = config.TransportQUIC
		a.serve(t, flood(t))
	})
}

// serve replaces the upstream.
func (a *instance) serve(t *testing.T, address string) {
	t.Helper()
	set, err := upstream.Open(&config.Config{Upstreams: map[string]config.Upstream{"box": {BaseURL: address + "/v1"}}},
		nil, a.Logger)
	if err != nil {
		t.Fatal(err)
	}
	a.config.proxy.Use(set)
}

// TestBlackoutUnderLoad: the path is dead until the connector counts as silent and the congestion
// window is full. The stream continues on the same tunnel.
func TestBlackoutUnderLoad(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	a := startFlood(t, g)
	c := g.openFlood(t)
	if err := c.read(2000); err != nil {
		t.Fatal(err)
	}
	before := g.Counters().Connected
	g.relay.blocked.Store(true)
	wait.Until(t, "the silence to be noticed", func() bool { return len(g.Sessions()) == 0 })
	if s := a.Status(); s.State != StateOnline || s.Running != 1 {
		t.Errorf("in the silence: %+v", s)
	}
	g.relay.blocked.Store(false)
	// These are more lines than were in flight before.
	if err := c.read(20_000); err != nil {
		t.Fatal(err)
	}
	if n := g.Counters(); n.Connected != before || a.Status().Tunnels != before {
		t.Errorf("%+v, %d tunnels; %d before", n, a.Status().Tunnels, before)
	}
}

// TestRequestOnItsWayInABlackout: a request that the gateway sends before it notices the silence
// fails when two pings are overdue. The tunnel stays.
func TestRequestOnItsWayInABlackout(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	startReal(t, g, nil)
	g.mustAsk(t)
	g.relay.blocked.Store(true)
	if err := g.ask(t.Context()); !errors.Is(err, link.ErrSilent) {
		t.Errorf("the request in the silence: %v", err)
	}
	g.relay.blocked.Store(false)
	g.mustAsk(t)
	if n := g.Counters(); n.Connected != 1 || n.Failed != 1 {
		t.Errorf("%+v", n)
	}
}

// TestSuspended: the gateway gives the tunnel up while the connector's machine is suspended. The
// connector's timers have not run, but a stateless reset answers its first ping.
func TestSuspended(t *testing.T) {
	t.Parallel()
	g := startRealGateway(t)
	a := startReal(t, g, nil)
	g.mustAsk(t)
	g.relay.blocked.Store(true)
	g.Disconnect(g.token.Connector, link.CloseLost)
	wait.Until(t, "the end at the gateway", func() bool { return len(g.Sessions()) == 0 })
	time.Sleep(time.Second) // on a busy machine, the gateway may still repeat its last packet
	g.relay.blocked.Store(false)
	g.mustAsk(t)
	if log := a.log.String(); strings.Contains(log, "has not sent anything for too long") {
		t.Errorf("log %s", log)
	}
}

// TestEndInSilence: the agent does not wait for a tunnel without requests if the gateway is silent.
func TestEndInSilence(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *instance) {
		a.confirmLimit, a.DrainTimeout = time.Second, forever
	})
	g.lively()
	a.stop() // the gateway confirms no drain
	if err := wait.For(t, a.result, "the agent's end"); err != nil {
		t.Error(err)
	}
}

// TestAnotherGatewayAtTheAddress: a gateway that lost its storage does not know the
// tunnel, and cannot report that. The reason is reported at once.
func TestAnotherGatewayAtTheAddress(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1",
		func(a *instance) { a.lostAfter = time.Second })
	g.lively()
	giveBack := g.otherIdentity()
	wait.Until(t, "the reason", func() bool {
		p := a.Status().Problem
		return p != nil && strings.Contains(p.Reason, link.ErrPin.Error()) && strings.Contains(p.Fix, "lost its storage")
	})
	giveBack()
	g.sessionAfterWaking(a)
}

// otherIdentity starts a gateway with another identity at the same address, until the identity
// is given back.
func (g *fakeGateway) otherIdentity() (giveBack func()) {
	own, address := g.identity, g.token.Server
	restart := func(identity []byte) {
		g.kill()
		g.identity = identity
		g.listen(address)
	}
	identity, err := link.NewIdentity()
	if err != nil {
		g.t.Fatal(err)
	}
	restart(identity)
	return func() { restart(own) }
}
