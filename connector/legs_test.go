package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/doctor"
	"github.com/postern-dev/postern/connector/tty"
)

// TestStatusOfLegs: the tunnels to the edges of a cluster are shown one by one.
func TestStatusOfLegs(t *testing.T) {
	now := time.Now()
	first := agent.LegStatus{
		Edge: "edge-a", State: agent.StateOnline, Since: now,
		Tunnel: &agent.TunnelStatus{Transport: "quic", RTT: 12 * time.Millisecond, GatewayVersion: "v1"},
	}
	second := agent.LegStatus{
		Edge: "edge-b", State: agent.StateWaiting, Since: now,
		Problem: &agent.Problem{Reason: "no answer over UDP", Fix: "check that", RetryAt: now.Add(5 * time.Second)},
	}
	s := agent.Status{
		State: first.State, Since: now, Server: "gw:1", Tunnel: first.Tunnel,
		Legs: []agent.LegStatus{first, second},
	}
	var b strings.Builder
	writeStatus(&b, s, now)
	want := `state      online for 0s
gateway    gw:1  version v1
tunnel     edge-a over quic, round trip 12ms
           edge-b  not connected, next try in 5s: no answer over UDP
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

func TestStatusColors(t *testing.T) {
	flags := new(pflag.FlagSet)
	tty.Flag(flags)
	_ = flags.Set("color", "always")
	defer func() { _ = flags.Set("color", "auto") }()
	now := time.Now()
	var out strings.Builder
	writeStatus(&out, agent.Status{State: agent.StateOnline, Since: now, Server: "gw\x1b[2J:1"}, now)
	if want := "\x1b[32monline\x1b[0m\x1b[2m for 0s\x1b[0m\n\x1b[2mgateway    \x1b[0mgw[2J:1\n"; !strings.Contains(
		out.String(), want) {
		t.Errorf("status prints %q, not %q", out.String(), want)
	}
	out.Reset()
	writeFinding(&out, doctor.Finding{Check: "udp", Result: doctor.ResultFailed, Detail: "no answer"})
	writeFinding(&out, doctor.Finding{Check: "pin", Result: doctor.ResultSkipped, Detail: "no answer"})
	if want := "\x1b[31mfailed  \x1b[0m udp: no answer\nskipped  pin: no answer\n"; out.String() != want {
		t.Errorf("doctor prints %q, want %q", out.String(), want)
	}
}
