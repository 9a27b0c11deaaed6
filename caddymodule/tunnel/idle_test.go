package tunnel

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/race"
)

// childVariable makes the test binary a gateway: memory can only be measured in
// a process of its own.
const childVariable = "POSTERN_TEST_IDLE_GATEWAY"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		idleGateway()
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // they wait and do not compute
		panic(err)
	}
	os.Exit(m.Run())
}

// idleGateway prints its address and pin, then for each line of its input how
// many goroutines it has and how much memory in KiB.
func idleGateway() {
	t := &testing.B{}
	g := newGateway(t, Options{})
	fmt.Println(g.addr, g.Pin())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		for range 3 { // what is pooled, and stacks, shrink step by step
			debug.FreeOSMemory()
		}
		fmt.Println(runtime.NumGoroutine(), residentKB())
	}
}

// residentKB is this process's resident memory.
func residentKB() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, _ := strconv.Atoi(strings.Fields(rest)[0])
	return kb
}

// TestIdleTunnelsAreSmall: 3 or 4 goroutines and about 66 KB each, after a hello
// and a ping. Nearly all of it is QUIC's.
func TestIdleTunnelsAreSmall(t *testing.T) {
	tunnels := 200
	if race.Enabled { // only goroutines are counted
		tunnels = 50
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close() // its sign to end
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	var addr, pin string
	if !lines.Scan() {
		t.Fatal("the gateway did not start")
	}
	_, _ = fmt.Sscan(lines.Text(), &addr, &pin)
	hub := new(Hub)
	hub.proof.Store(&proof{pin: pin})
	g := &testGateway{Hub: hub, addr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))}
	measure := func() (goroutines, kb int) {
		fmt.Fprintln(in)
		lines.Scan()
		_, _ = fmt.Sscan(lines.Text(), &goroutines, &kb)
		return goroutines, kb
	}
	g.connect(t, "warm up", echo)
	goroutines, kb := measure()
	for i := range tunnels {
		c := g.connect(t, "con_"+strconv.Itoa(i), echo)
		_ = c.control.Send(link.Ping{})
		_ = c.next(t)
	}
	moreGoroutines, moreKB := measure()
	each, eachKB := float64(moreGoroutines-goroutines)/float64(tunnels), float64(moreKB-kb)/float64(tunnels)
	t.Logf("%.1f goroutines and %.1f KB for each of %d idle tunnels", each, eachKB, tunnels)
	if each > 4 {
		t.Errorf("%.1f goroutines for each tunnel", each)
	}
	if eachKB > 85 && !race.Enabled { // which takes several times as much
		t.Errorf("%.1f KB for each tunnel", eachKB)
	}
}
