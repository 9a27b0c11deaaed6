//go:build linux

package network

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/lab"
	"github.com/postern-dev/postern/tests/upstream"
)

// flows records the source addresses of packets to the gateway.
type flows struct {
	mu   sync.Mutex
	seen map[netip.AddrPort]bool
	last time.Time // time of the last packet
}

func watchFlows(w *lab.Wire) *flows {
	f := &flows{seen: map[netip.AddrPort]bool{}}
	w.Tap(func(p lab.Packet, out bool) {
		if out && p.UDP() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen[p.Source()], f.last = true, time.Now()
		}
	})
	return f
}

// waitIdle waits until there have been no packets for a moment.
func (f *flows) waitIdle(t *testing.T) {
	t.Helper()
	harness.Poll(t, patience, "the connector sending nothing", func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if silent := time.Since(f.last); silent < 300*time.Millisecond {
			return fmt.Errorf("the last packet came %v ago", silent)
		}
		return nil
	})
}

func (f *flows) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.seen)
}

// 20 changes of a NAT's mapping end neither a stream nor the tunnel.
func TestRebinds(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	release := make(chan struct{})
	r.serve(t, "ticker", upstream.SlowTokens(20*time.Millisecond, release))
	r.serve(t, "echo", upstream.Echo)
	seen := watchFlows(r.WAN)
	f := r.follow(t, "ticker")
	f.wait(t, 3, patience)
	for range 20 {
		must(t, r.Rebind())
		f.wait(t, 5, patience)
	}
	close(release)
	f.whole(t)
	if n := seen.count(); n < 20 {
		t.Errorf("the NAT has used only %d ports: nothing was tested", n)
	}
	// Without packets, the gateway does not know the new address. A request waits for the connector's next
	// packet.
	seen.waitIdle(t)
	must(t, r.Rebind())
	t.Logf("the first answer after a rebind while idle took %v",
		r.waitAnswer(t, "echo", patience).Round(10*time.Millisecond))
	if n := r.online(r.box); n != 1 {
		t.Errorf("the connector came online %d times", n)
	}
}

// A machine that changes networks gets new local and public addresses. The tunnel continues.
func TestAddressChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	release := make(chan struct{})
	r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, release))
	seen := watchFlows(r.WAN)
	f := r.follow(t, "ticker")
	f.wait(t, 3, patience)
	for i := range 5 {
		must(t, r.Move(i+1))
		f.wait(t, 5, patience)
	}
	close(release)
	f.whole(t)
	if n := seen.count(); n < 6 {
		t.Errorf("the gateway has seen only %d addresses: nothing was tested", n)
	}
	if n := r.online(r.box); n != 1 {
		t.Errorf("the connector came online %d times", n)
	}
}
