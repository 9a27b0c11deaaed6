package tunnel

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // they wait and do not compute
		panic(err)
	}
	os.Exit(m.Run())
}

// TestIdleTunnelsAreSmall: after a hello and a ping, the gateway has two goroutines for each, apart from QUIC's.
func TestIdleTunnelsAreSmall(t *testing.T) {
	const tunnels = 50
	g := newGateway(t, Options{})
	for i := range tunnels {
		c := g.connect(t, "con_"+strconv.Itoa(i), echo)
		_ = c.control.Send(link.Ping{})
		_ = c.next(t)
	}
	stacks := make([]byte, 16<<20)
	n := 0
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "tunnel.(*Hub)") || strings.Contains(stack, "tunnel.(*Session)") {
			n++
		}
	}
	if n < tunnels || n > 2*tunnels+5 {
		t.Errorf("%d goroutines for %d idle tunnels", n, tunnels)
	}
}
