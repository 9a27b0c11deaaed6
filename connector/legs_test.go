package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/agent"
)

// TestStatusOfLegs: the tunnels to the edges of a cluster are shown one by one.
func TestStatusOfLegs(t *testing.T) {
	now := time.Now()
	first := agent.LegStatus{
		State: agent.StateOnline, Since: now,
		Tunnel: &agent.TunnelStatus{Edge: "edge-a", Transport: "quic", RTT: 12 * time.Millisecond, GatewayVersion: "v1"},
	}
	second := agent.LegStatus{
		State: agent.StateWaiting, Since: now,
		Problem: &agent.Problem{Reason: "no answer over UDP", Fix: "check that", RetryAt: now.Add(5 * time.Second)},
	}
	s := agent.Status{
		State: first.State, Since: now, Server: "gw:1", Tunnel: first.Tunnel,
		Legs: []agent.LegStatus{first, second},
	}
	var b strings.Builder
	for _, l := range reportLines(s, now, 5) {
		shown, _ := (&screen{w: &b}).render(l, math.MaxInt)
		fmt.Fprintln(&b, shown)
	}
	want := `state      online for 0s
gateway    gw:1  version v1
tunnel     edge-a over quic, round trip 12ms
           not connected, next try in 5s: no answer over UDP
requests   0 running, 0 served
`
	if b.String() != want {
		t.Errorf("got\n%s", &b)
	}
	want = "online at gw:1 over quic, 1 of 2 tunnels (edge-a); requests: 0 running, 0 served"
	if got := oneLine(s); got != want {
		t.Errorf("got %s", got)
	}
	b.Reset()
	writeMetrics(&b, s, now)
	want = "\npostern_connector_tunnel_rtt_seconds{transport=\"quic\",edge=\"edge-a\"} 0.012\n"
	if strings.Count(b.String(), want) != 1 || strings.Count(b.String(), "rtt_seconds{") != 1 {
		t.Errorf("got\n%s", &b)
	}
}
