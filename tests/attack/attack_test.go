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
	// bound is the most memory that a gateway may have at any time of an attack by
	// so many.
	bound = 640 << 20
	// lasts is how long one goes on: longer than the 5 s that a connection may go
	// without a hello.
	lasts = 8 * time.Second
	// patience is for what happens at once on a machine that has nothing else to do.
	patience = harness.Patience
)

// program is the attackers'.
var program string

func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		fmt.Println("-short: no attacks; caddymodule/tunnel has what each of them meets")
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

// TestUnknown: connections whose hello does not come, or is none.
func TestUnknown(t *testing.T) {
	for _, attack := range []string{
		"quic/hellos", "websocket/hellos", "quic/handshakes", "quic/streams", "websocket/handshakes", "websocket/packets",
	} {
		t.Run(attack, func(t *testing.T) {
			newTarget(t, harness.Options{HTTPS: strings.HasPrefix(attack, "websocket/")}).endure(t, attack)
		})
	}
}

// TestFloods: clients of the API that flood the gateway with frames of HTTP/2.
func TestFloods(t *testing.T) {
	newTarget(t, harness.Options{HTTPS: true}).endure(t, "floods")
}

// TestSlowClients: requests that do not come to their end.
func TestSlowClients(t *testing.T) {
	newTarget(t, harness.Options{}).endure(t, "slow")
}

// TestEndlessAnswers: upstreams that do not end what they say.
func TestEndlessAnswers(t *testing.T) {
	const (
		head   = "HTTP/1.1 200 OK\r\n"
		object = "Content-Type: application/json\r\nContent-Length: 9000000000\r\n\r\n"
		stream = "Content-Type: text/event-stream\r\nContent-Length: 9000000000\r\n\r\n"
	)
	text := strings.Repeat("x", 2<<10)
	g := newTarget(t, harness.Options{Site: "connect_wait 1s"})
	for model, says := range map[string][2]string{
		"json":          {head + object + `{"choices":[{"message":{"content":"`, text},
		"event":         {head + stream + "data: ", text},
		"header":        {head, "A: " + text + "\r\n"},
		"informational": {"", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"},
		"error":         {"HTTP/1.1 500 Oh\r\n" + object + `{"error":{"message":"`, text},
		"call": {
			head + stream,
			`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function",` +
				`"function":{"name":"f","arguments":"` + text + `"}}]}}]}` + "\n\n",
		},
	} {
		g.models = append(g.models, model)
		g.endless(model, says[0], says[1])
		g.Deploy(t, model, link.TransportQUIC, "", model)
	}
	g.endure(t, "endless")
}

// A target is a gateway with honest connectors and clients.
type target struct {
	*harness.Gateway
	up       *upstream.Server
	client   *harness.Client
	newcomer *harness.Connector
	key      string
	tokens   []string // of connectors that the attackers have
	models   []string // whose upstreams do not end what they say
}

func newTarget(t *testing.T, o harness.Options) *target {
	t.Helper()
	o.Site = cmp.Or(o.Site, "connect_wait 1m") // attackers may keep a machine so busy that a tunnel is lost
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

// endless makes the upstream of a model begin with start, and go on with again
// until nobody takes it any more.
func (g *target) endless(model, start, again string) {
	g.up.Handle(model, func(x *upstream.Exchange) {
		x.Write(start)
		for !x.Left() {
			select {
			case <-x.Gone():
				return
			case <-time.After(time.Millisecond):
			}
			x.Write(again)
		}
	})
}

// rss is the memory that a process has.
func rss(t *testing.T, p *harness.Process) int {
	t.Helper()
	kib, err := p.Kilobytes("status", "VmRSS:")
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// attack starts an attack. The attackers leave the processor to others where they
// can: these tests are about memory.
func (g *target) attack(t *testing.T, name string) (stop func() string) {
	t.Helper()
	command := exec.Command("nice", "-n", "10", program)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := g.StartProcess(t, "attacker", command)
	order := map[string]any{
		"Attack": name, "UDP": g.UDP, "URL": g.URL, "Key": g.key, "Tokens": g.tokens,
		"Models": g.models,
	}
	if err := json.NewEncoder(in).Encode(order); err != nil {
		t.Fatal(err)
	}
	return func() string {
		_ = in.Close()
		if code := p.WaitExit(t, patience); code != 0 {
			t.Errorf("the attackers ended with code %d", code)
		}
		return strings.TrimSpace(p.Log())
	}
}

// A siege is an attack, and how honest clients fared.
type siege struct {
	story   string
	highest int // bytes of memory that the gateway had

	mu     sync.Mutex
	served map[string][]time.Duration // by model
}

// siege attacks the gateway for a time, or longer until honest clients, who ask one
// after the other, were served. Halfway it calls another function.
func (g *target) siege(t *testing.T, attack string, lasts time.Duration, ask func(model string) error,
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
	timer := time.NewTimer(lasts / 2)
	defer timer.Stop()
	for g.Process.Running() && !t.Failed() && (time.Since(start) < lasts || !enough() && time.Since(start) < patience) {
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

// endure attacks the gateway for a while, during which a new connector comes in.
func (g *target) endure(t *testing.T, attack string) {
	t.Helper()
	before := rss(t, g.Process)
	// A machine that the attackers keep busy may lose a tunnel: a request is sent up to
	// two times again, as the SDKs do.
	var again atomic.Int64
	s := g.siege(t, attack, lasts, func(model string) (err error) {
		for range 3 {
			if err = g.right(t, model); err == nil {
				return nil
			}
			again.Add(1)
			time.Sleep(time.Second)
		}
		return err
	}, func() { g.welcome(t.Context(), t) })
	t.Logf("%s: from %d to at most %d MiB; honest requests: %d over QUIC, %d over WebSocket, %d sent again", s.story,
		before>>20, s.highest>>20,
		len(s.served[link.TransportQUIC]), len(s.served[link.TransportWebSocket]), again.Load())
	if s.highest > bound {
		t.Errorf("the gateway had %d MiB, more than %d", s.highest>>20, bound>>20)
	}
}

// welcome waits for an honest connector that comes during an attack.
func (g *target) welcome(ctx context.Context, t *testing.T) {
	g.newcomer.Launch(t)
	start := time.Now()
	if err := g.newcomer.Await(ctx, "online", patience); err != nil {
		t.Errorf("a new connector did not come in: %v", err)
		return
	}
	t.Logf("a new connector came in after %v", time.Since(start).Round(time.Millisecond))
}
