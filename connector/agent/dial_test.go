package agent

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

func TestAgentMeetsNoAnswer(t *testing.T) {
	t.Parallel()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0") // receives everything, sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	g := startGateway(t)
	const limit = 500 * time.Millisecond
	start := time.Now() // before the agent, which dials at once
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *instance) {
		a.config.quic.Server, a.dialLimit = socket.LocalAddr().String(), limit
	})
	want := `level=WARN msg="cannot connect" reason="dialing ` + socket.LocalAddr().String() +
		`: no answer over UDP" retry_in=`
	wait.Until(t, "the log line "+want, func() bool { return strings.Contains(a.log.String(), want) })
	if took := time.Since(start); took < limit || took > 9*time.Second { // QUIC's own limit is 10 s without an answer
		t.Errorf("the first attempt took %v", took)
	}
}

// TestAgentDialsAllAddresses gives the gateway's name two addresses. The first is a black hole.
func TestAgentDialsAllAddresses(t *testing.T) {
	t.Parallel()
	hole, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	g := startGateway(t)
	var lookups atomic.Int32
	start := time.Now()
	startAgent(t, g, "http://127.0.0.1:1", func(a *instance) {
		a.config.quic.Resolve = func(context.Context, string) ([]netip.AddrPort, error) {
			lookups.Add(1)
			return []netip.AddrPort{
				netip.MustParseAddrPort(hole.LocalAddr().String()),
				netip.MustParseAddrPort(g.token.Server),
			}, nil
		}
	})
	s := g.session()
	if took := time.Since(start); took < 250*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	s.close(link.CloseShutdown)
	g.session()
	if got := lookups.Load(); got != 2 { // the hole has cost no attempt
		t.Errorf("%d lookups for 2 tunnels", got)
	}
}
