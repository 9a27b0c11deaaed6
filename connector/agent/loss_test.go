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
)

func TestLossMeter(t *testing.T) {
	type span struct{ sent, lost uint64 }
	bad, good := span{200, 8}, span{1000, 30}
	for name, test := range map[string]struct {
		spans []span
		want  int // the span after which it is too much, from 1; 0: never
	}{
		"a minute":         {[]span{bad, bad, bad, bad}, 4},
		"after a good one": {[]span{bad, bad, bad, good, bad, bad, bad, bad}, 8},
		"3 percent":        {[]span{good, good, good, good, good}, 0},
		"a burst":          {[]span{good, {1000, 900}, good, good, good}, 0},
		"hardly anything":  {[]span{{90, 40}, {90, 40}, {90, 40}, {90, 40}}, 0},
		"still bad":        {[]span{bad, bad, bad, bad, bad}, 4},
	} {
		m := lossMeter{sent: 5000, lost: 4000}
		sent, lost, got := m.sent, m.lost, 0
		for i, s := range test.spans {
			sent, lost = sent+s.sent, lost+s.lost
			if m.span(sent, lost) && got == 0 {
				got = i + 1
			}
		}
		if got != test.want {
			t.Errorf("%s: too much after span %d, want %d", name, got, test.want)
		}
	}
	m := lossMeter{sent: 1000, lost: 500, bad: 3}
	if m.span(2000, 400) { // packets that counted as lost have arrived
		t.Error("loss that was none is too much")
	}
}

func TestLossGuard(t *testing.T) {
	var g lossGuard
	now := time.Now()
	if g.avoided(now) {
		t.Error("QUIC is avoided from the start")
	}
	for i, want := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		if got := g.avoid(now); got != want {
			t.Errorf("move %d: avoided for %v, want %v", i+1, got, want)
		}
		if !g.avoided(now.Add(want-time.Second)) || g.avoided(now.Add(want)) {
			t.Errorf("move %d: not avoided for %v", i+1, want)
		}
		now = now.Add(want + time.Minute)
	}
	now = g.until.Add(lossForgotten + time.Second) // QUIC was good for an hour
	if got := g.avoid(now); got != 10*time.Minute {
		t.Errorf("avoided for %v after a good hour", got)
	}
	if g.stays(now) {
		t.Error("a WebSocket is slower from the start")
	}
	if g.stay(now); !g.stays(now.Add(slowFor-time.Second)) || g.stays(now.Add(slowFor)) {
		t.Errorf("a WebSocket is not slower for %v", slowFor)
	}
}

// startLossy starts an agent on a path that loses a fifth of its packets, and
// clients that ask for answers of many packets until the test or stop ends them.
func startLossy(t *testing.T, g *realGateway, change ...func(*Agent)) (a *runningAgent, stop func()) {
	t.Helper()
	answer := strings.Repeat("0123456789", 10_000)
	a = startReal(t, g, func(a *Agent) {
		a.lossSpan, a.firstUpgrade = 500*time.Millisecond, time.Millisecond
		a.web.bbr = func(net.Conn) bool { return true } // whatever this kernel has
		a.serve(t, answerWith(t, answer))
		for _, c := range change {
			c(a)
		}
	})
	eventually(t, "a tunnel", func() bool { return g.transport() == "quic" })
	g.relay.lossy.Store(true)
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
	return a, func() {
		cancel()
		clients.Wait()
	}
}

// soon waits for something that a busy machine may take long for.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("waited 2 minutes for %s", what)
			return
		}
	}
}

// TestLossyPath: QUIC that loses too much is left for a WebSocket without a
// failed request, and stays left, also by the next tunnel.
func TestLossyPath(t *testing.T) {
	g := startRealGateway(t)
	a, stop := startLossy(t, g)
	soon(t, "the WebSocket", func() bool { return g.transport() == "websocket" })
	g.relay.lossy.Store(false)
	time.Sleep(time.Second) // 1,000 times what QUIC is tried again after
	stop()
	if n := g.Counters(); n.Failed != 0 || n.Connected != 2 || n.Replaced != 0 || g.transport() != "websocket" {
		t.Errorf("%+v, the tunnel goes over %s", n, g.transport())
	}
	if log := a.log.String(); !strings.Contains(log, `msg="QUIC loses too many packets; leaving it for a WebSocket"`) || !strings.Contains(log, "for=10m0s") {
		t.Errorf("log %s", log)
	}
	g.Disconnect(g.token.Connector, link.CloseShutdown)
	eventually(t, "the next tunnel", func() bool { return g.Counters().Connected == 3 && g.transport() != "" })
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
	_, stop := startLossy(t, g)
	soon(t, "an attempt with a WebSocket", func() bool { return tries.Load() > 0 })
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
	a, stop := startLossy(t, g, func(a *Agent) {
		a.web.bbr = func(conn net.Conn) bool {
			if _, ok := conn.(*net.TCPConn); !ok {
				t.Errorf("asked about a %T", conn)
			}
			tries.Add(1)
			return false
		}
	})
	soon(t, "the decision", func() bool { return strings.Contains(a.log.String(), "staying on it all the same") })
	time.Sleep(lossSpans * 600 * time.Millisecond) // as long again
	stop()
	if n := g.Counters(); n.Connected != 1 || n.Failed != 0 || g.transport() != "quic" || tries.Load() != 1 {
		t.Errorf("%+v, the tunnel goes over %s after %d tries", n, g.transport(), tries.Load())
	}
}
