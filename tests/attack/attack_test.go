//go:build linux

package attack

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

const (
	// bound is the maximum memory of a gateway during an attack.
	bound = 640 << 20
	// duration is the length of an attack. It is longer than the 5 s that a connection may take to send its
	// hello.
	duration = 8 * time.Second
	// patience is the limit for actions that are immediate on an idle machine.
	patience = harness.Patience
)

// program is the path of the attackers' program.
var program string

func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		fmt.Println("-short: no attacks; tests of caddymodule/tunnel cover the limits")
		return
	}
	dir, err := os.MkdirTemp("", "postern-attack-")
	if err == nil {
		program = filepath.Join(dir, "attacker")
		err = exec.Command("go", "build", "-trimpath", "-o", program, "./attacker").Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the attackers:", err)
		os.Exit(1)
	}
	code := harness.Run(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// Connections send no hello, or an invalid one.
func TestUnknown(t *testing.T) {
	for _, attack := range []string{
		"quic/hellos", "websocket/hellos", "quic/handshakes", "quic/streams", "websocket/handshakes", "websocket/packets",
	} {
		t.Run(attack, func(t *testing.T) {
			newTarget(t, harness.Options{HTTPS: strings.HasPrefix(attack, "websocket/")}).endure(t, attack)
		})
	}
}

// Clients of the API flood the gateway with HTTP/2 frames.
func TestFloods(t *testing.T) {
	newTarget(t, harness.Options{HTTPS: true}).endure(t, "floods")
}

// Clients send requests that never end.
func TestSlowClients(t *testing.T) {
	newTarget(t, harness.Options{}).endure(t, "slow")
}

// A target is a gateway with honest connectors and clients.
type target struct {
	*harness.Gateway
	up       *upstream.Server
	client   *harness.Client
	newcomer *harness.Connector
	key      string
	tokens   []string // tunnel tokens that the attackers know
}

func newTarget(t *testing.T, o harness.Options) *target {
	t.Helper()
	o.Site = cmp.Or(o.Site, "connect_wait 1m") // a busy machine may lose tunnels
	g := &target{Gateway: harness.Start(t, o), up: upstream.Start(t)}
	_, key := g.Key(t, "all", "*")
	g.key, g.client = key, g.Gateway.Client(t, key)
	for _, transport := range []string{link.TransportQUIC, link.TransportWebSocket} {
		c := g.NewConnector(t, transport, map[string]any{"upstream": g.up.URL, "transport": transport})
		c.Start(t)
		g.up.Handle("up-"+transport, upstream.Echo)
		g.Deploy(t, transport, c.ID, "", "up-"+transport)
	}
	g.newcomer = g.NewConnector(t, "newcomer", map[string]any{"upstream": g.up.URL})
	hostile := g.NewConnector(t, "hostile", map[string]any{"upstream": g.up.URL})
	g.tokens = []string{hostile.Token}
	return g
}

// rss returns the resident memory of a process in bytes.
func rss(t *testing.T, p *harness.Process) int {
	t.Helper()
	kib, err := p.Kilobytes("status", "VmRSS:")
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// attack starts an attack. The attackers have a low priority, because these tests are about memory.
func (g *target) attack(t *testing.T, name string) (stop func() string) {
	t.Helper()
	command := exec.Command("nice", "-n", "10", program)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := g.StartProcess(t, "attacker", command)
	order := map[string]any{"Attack": name, "UDP": g.UDP, "URL": g.URL, "Key": g.key, "Tokens": g.tokens}
	if err := json.NewEncoder(in).Encode(order); err != nil {
		t.Fatal(err)
	}
	return func() string {
		_ = in.Close()
		if code := p.WaitExit(t, patience); code != 0 {
			t.Errorf("the attackers exited with code %d", code)
		}
		return strings.TrimSpace(p.Log())
	}
}

// A siege is the result of an attack.
type siege struct {
	story   string
	highest int // maximum memory of the gateway in bytes

	mu     sync.Mutex
	served map[string][]time.Duration // times of honest requests by model
}

// siege attacks the gateway for the given time, or longer until each of the honest clients has had some
// answers. These send one request after the other. siege calls halfway in the middle of the attack.
func (g *target) siege(t *testing.T, attack string, length time.Duration, ask func(model string) error,
	halfway func(),
) *siege {
	t.Helper()
	s := &siege{highest: rss(t, g.Process), served: map[string][]time.Duration{}}
	models := []string{link.TransportQUIC, link.TransportWebSocket}
	ctx, end := context.WithCancel(t.Context())
	var clients, other sync.WaitGroup
	for _, model := range models {
		clients.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				if err := ask(model); err != nil {
					t.Errorf("an honest request over %s after %v: %v", model, time.Since(start).Round(time.Millisecond), err)
					return
				}
				s.mu.Lock()
				s.served[model] = append(s.served[model], time.Since(start))
				s.mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	enough := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return min(len(s.served[models[0]]), len(s.served[models[1]])) >= 10
	}
	stop, start := g.attack(t, attack), time.Now()
	timer := time.NewTimer(length / 2)
	defer timer.Stop()
	for g.Process.Running() && !t.Failed() && (time.Since(start) < length || !enough() && time.Since(start) < patience) {
		s.highest = max(s.highest, rss(t, g.Process))
		select {
		case <-timer.C:
			other.Go(halfway)
		case <-time.After(20 * time.Millisecond):
		}
	}
	other.Wait()
	s.story = stop()
	end()
	clients.Wait()
	if !g.Process.Running() {
		t.Fatal("the gateway has ended")
	}
	if !enough() {
		t.Fatal("honest clients were not served")
	}
	return s
}

// endure attacks the gateway. During the attack, a new connector connects.
func (g *target) endure(t *testing.T, attack string) {
	t.Helper()
	before := rss(t, g.Process)
	// If the machine is busy, a tunnel may be lost. So a request is retried twice, as by the SDKs.
	var retries atomic.Int64
	s := g.siege(t, attack, duration, func(model string) (err error) {
		for range 3 {
			if err = g.checkAnswer(t, model); err == nil {
				return nil
			}
			retries.Add(1)
			time.Sleep(time.Second)
		}
		return err
	}, func() { g.connectNew(t.Context(), t) })
	t.Logf("%s: from %d to at most %d MiB; honest requests: %d over QUIC, %d over WebSocket, %d retries", s.story,
		before>>20, s.highest>>20,
		len(s.served[link.TransportQUIC]), len(s.served[link.TransportWebSocket]), retries.Load())
	if s.highest > bound {
		t.Errorf("the gateway had %d MiB, more than %d", s.highest>>20, bound>>20)
	}
}

// connectNew starts a connector during an attack and waits until it is online.
func (g *target) connectNew(ctx context.Context, t *testing.T) {
	g.newcomer.Launch(t)
	start := time.Now()
	if err := g.newcomer.Await(ctx, "online", patience); err != nil {
		t.Errorf("a new connector did not connect: %v", err)
		return
	}
	t.Logf("a new connector connected after %v", time.Since(start).Round(time.Millisecond))
}
