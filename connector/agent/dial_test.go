package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

func TestAgentMeetsNoAnswer(t *testing.T) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0") // takes everything, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *Agent) { a.dialer.server = socket.LocalAddr().String() })
	want := `level=WARN msg="cannot connect" reason="dialling ` + socket.LocalAddr().String() + `: no answer over UDP" retry_in=`
	start := time.Now()
	eventually(t, "the log line "+want, func() bool { return strings.Contains(a.log.String(), want) })
	if took := time.Since(start); took < 1500*time.Millisecond || took > 4*time.Second {
		t.Errorf("the first attempt took %v", took)
	}
}

// TestAgentDialsAllAddresses gives the gateway's name two addresses, of which
// the first is a black hole.
func TestAgentDialsAllAddresses(t *testing.T) {
	hole, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	g := startGateway(t)
	var lookups atomic.Int32
	start := time.Now()
	startAgent(t, g, "http://127.0.0.1:1", func(a *Agent) {
		a.dialer.resolve = func(context.Context, string) ([]netip.AddrPort, error) {
			lookups.Add(1)
			return []netip.AddrPort{netip.MustParseAddrPort(hole.LocalAddr().String()), netip.MustParseAddrPort(g.token.Server)}, nil
		}
	})
	s := g.session()
	if took := time.Since(start); took < addressStagger || took > addressStagger+time.Second {
		t.Errorf("it took %v", took)
	}
	s.close(link.CloseShutdown)
	g.session()
	if got := lookups.Load(); got != 2 {
		t.Errorf("%d lookups for 2 tunnels", got)
	}
}

func TestInterleave(t *testing.T) {
	addresses := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	tests := []struct {
		found []netip.Addr
		want  string
	}{
		{nil, "[]"},
		{addresses("10.0.0.1"), "[10.0.0.1:7]"},
		{addresses("2001:db8::1", "2001:db8::2", "10.0.0.1"), "[[2001:db8::1]:7 10.0.0.1:7 [2001:db8::2]:7]"},
		{addresses("::ffff:10.0.0.1", "::1", "10.0.0.2", "10.0.0.3"), "[10.0.0.1:7 [::1]:7 10.0.0.2:7 10.0.0.3:7]"},
		{
			addresses("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8", "10.0.0.9"),
			"[10.0.0.1:7 10.0.0.2:7 10.0.0.3:7 10.0.0.4:7 10.0.0.5:7 10.0.0.6:7 10.0.0.7:7 10.0.0.8:7]",
		},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(interleave(tt.found, 7)); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestResolve(t *testing.T) {
	got, err := resolve(t.Context(), "[::1]:7443")
	if err != nil || fmt.Sprint(got) != "[[::1]:7443]" {
		t.Errorf("got %v, %v", got, err)
	}
	got, err = resolve(t.Context(), "localhost:7443")
	if err != nil || len(got) == 0 || !got[0].Addr().IsLoopback() {
		t.Errorf("got %v, %v", got, err)
	}
}
