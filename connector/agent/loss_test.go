package agent

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// startLossy starts an agent on a path that loses a fifth of its packets, and
// clients that ask for answers of many packets until the test or stop ends them.
// It counts the agent's looks at the loss. With -short the path is a good one, and the
// agent gets such figures.
func startLossy(t *testing.T, g *realGateway, change ...func(*Agent)) (a *runningAgent, looks *atomic.Uint64, stop func()) {
	t.Helper()
	answer := strings.Repeat("0123456789", 2_000)
	looks = new(atomic.Uint64)
	a = startReal(t, g, func(a *Agent) {
		a.lossSpan, a.firstUpgrade = 500*time.Millisecond, time.Millisecond
		a.packets = func(s *session) (sent, lost uint64) {
			looks.Add(1)
			return s.packets()
		}
		if testing.Short() {
			a.lossSpan = 20 * time.Millisecond
			a.packets = func(*session) (sent, lost uint64) {
				n := looks.Add(1)
				return 1000 * n, 200 * n
			}
		}
		a.current.web.PreferBBR = func(net.Conn) bool { return true } // whatever this kernel has
		a.serve(t, answerWith(t, answer))
		for _, c := range change {
			c(a)
		}
	})
	wait.Until(t, "a tunnel", func() bool { return g.transport() == "quic" })
	g.relay.lossy.Store(!testing.Short())
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if body, err := g.answer(t.Context()); err != nil || body != answer {
					t.Errorf("%d bytes, %v", len(body), err)
				}
			}
		})
	}
	stop = func() {
		cancel()
		clients.Wait()
	}
	t.Cleanup(stop)
	return a, looks, stop
}

// TestLossyPath: QUIC that loses too much is left for a WebSocket without a
// failed request, and stays left, also by the next tunnel.
func TestLossyPath(t *testing.T) {
	g := startRealGateway(t)
	a, _, stop := startLossy(t, g)
	wait.Until(t, "the WebSocket", func() bool { return g.transport() == "websocket" })
	g.relay.lossy.Store(false)
	for range 20 { // much longer than QUIC is tried again after
		if _, err := g.answer(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stop()
	if n := g.Counters(); n.Failed != 0 || n.Connected != 2 || n.Replaced != 0 || g.transport() != "websocket" {
		t.Errorf("%+v, the tunnel goes over %s", n, g.transport())
	}
	if log := a.log.String(); !strings.Contains(log, `msg="QUIC loses too many packets; switching to a WebSocket"`) || !strings.Contains(log, "for=10m0s") {
		t.Errorf("log %s", log)
	}
	g.Disconnect(g.token.Connector, link.CloseShutdown)
	wait.Until(t, "the next tunnel", func() bool { return g.Counters().Connected == 3 && g.transport() != "" })
	if got := g.transport(); got != "websocket" {
		t.Errorf("the next tunnel goes over %s", got)
	}
}

// TestLossWithoutAWebSocket: then QUIC has to do.
func TestLossWithoutAWebSocket(t *testing.T) {
	g := startRealGateway(t)
	var tries atomic.Int32
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	g.token.URL = busy.URL
	_, _, stop := startLossy(t, g)
	wait.Until(t, "an attempt with a WebSocket", func() bool { return tries.Load() > 0 })
	stop()
	if n := g.Counters(); n.Connected != 1 || n.Failed != 0 {
		t.Errorf("%+v", n)
	}
}

// TestLossWithoutBBR: a WebSocket that would lose more time than QUIC is not taken,
// nor is it tried again soon.
func TestLossWithoutBBR(t *testing.T) {
	g := startRealGateway(t)
	var tries atomic.Int32
	a, looks, stop := startLossy(t, g, func(a *Agent) {
		a.current.web.PreferBBR = func(conn net.Conn) bool {
			if _, ok := conn.(*net.TCPConn); !ok {
				t.Errorf("asked about a %T", conn)
			}
			tries.Add(1)
			return false
		}
	})
	wait.Until(t, "the decision", func() bool { return strings.Contains(a.log.String(), "but a WebSocket would be slower") })
	before := looks.Load()
	wait.Until(t, "twice as many looks", func() bool { return looks.Load() >= 2*before })
	stop()
	if n := g.Counters(); n.Connected != 1 || n.Failed != 0 || g.transport() != "quic" || tries.Load() != 1 {
		t.Errorf("%+v, the tunnel goes over %s after %d tries", n, g.transport(), tries.Load())
	}
}
