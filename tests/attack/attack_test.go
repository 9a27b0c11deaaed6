//go:build linux

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	patience = 60 * time.Second
)

// program is the attackers'.
var program string

func TestMain(m *testing.M) {
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

// TestUnknown: connections whose hello does not come, or is none. With -short there
// is one attack for each transport; caddymodule/tunnel has what each of the others
// meets.
func TestUnknown(t *testing.T) {
	for _, attack := range []string{
		"quic/hellos", "websocket/hellos", "quic/handshakes", "quic/streams", "websocket/handshakes", "websocket/packets",
	} {
		t.Run(attack, func(t *testing.T) {
			if !strings.HasSuffix(attack, "/hellos") {
				long(t)
			}
			newTarget(t, harness.Options{HTTPS: strings.HasPrefix(attack, "websocket/")}).endure(t, attack)
		})
	}
}

// long leaves a test out with -short.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: attacks take long")
	}
}

// TestFloods: clients of the API that flood the gateway with frames of HTTP/2.
func TestFloods(t *testing.T) {
	long(t)
	newTarget(t, harness.Options{HTTPS: true}).endure(t, "floods")
}

// TestSlowClients: requests that do not come to their end.
func TestSlowClients(t *testing.T) {
	long(t)
	newTarget(t, harness.Options{}).endure(t, "slow")
}

// TestEndlessAnswers: upstreams that do not end what they say.
func TestEndlessAnswers(t *testing.T) {
	long(t)
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
		"call":          {head + stream, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"` + text + `"}}]}}]}` + "\n\n"},
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

// honest are clients that go on until ctx ends.
type honest struct {
	all     sync.WaitGroup
	served  [2]atomic.Int64
	again   atomic.Int64
	slowest atomic.Int64
}

func (g *target) honest(ctx context.Context, t *testing.T) *honest {
	h := &honest{}
	for i, model := range []string{link.TransportQUIC, link.TransportWebSocket} {
		for range 2 {
			h.all.Go(func() {
				for ctx.Err() == nil && h.one(t, g, model) {
					h.served[i].Add(1)
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
	}
	return h
}

// one sends a request, and up to two times again, as the SDKs do. A machine that
// the attackers keep busy may lose a tunnel.
func (h *honest) one(t *testing.T, g *target, model string) bool {
	for try := 0; ; try++ {
		start := time.Now()
		a, err := g.client.Send(g.client.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions", harness.Chat(model, "")))
		took := int64(time.Since(start))
		for was := h.slowest.Load(); took > was && !h.slowest.CompareAndSwap(was, took); was = h.slowest.Load() {
		}
		if err == nil && a.Err == nil && a.Status == http.StatusOK {
			return true
		}
		if try == 2 {
			t.Errorf("an honest request over %s: status %d, %v, %v, %s", model, a.Status, err, a.Err, a.Body)
			return false
		}
		h.again.Add(1)
		time.Sleep(time.Second)
	}
}

// enough tells whether it is clear that clients are served.
func (h *honest) enough() bool { return min(h.served[0].Load(), h.served[1].Load()) >= 10 }

func (h *honest) String() string {
	return fmt.Sprintf("%d over QUIC, %d over WebSocket, %d sent again, the slowest took %v",
		h.served[0].Load(), h.served[1].Load(), h.again.Load(), time.Duration(h.slowest.Load()).Round(time.Millisecond))
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
	order := map[string]any{"Attack": name, "UDP": g.UDP, "URL": g.URL, "Key": g.key, "Tokens": g.tokens, "Models": g.models}
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

// endure attacks the gateway for a while, which lasts until some honest clients
// have been served.
func (g *target) endure(t *testing.T, attack string) {
	t.Helper()
	before := rss(t, g.Process)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	clients := g.honest(ctx, t)
	stop := g.attack(t, attack)

	highest := before
	var newcomer sync.WaitGroup
	for start, come := time.Now(), false; time.Since(start) < lasts || !clients.enough() && time.Since(start) < patience; time.Sleep(20 * time.Millisecond) {
		highest = max(highest, rss(t, g.Process))
		if !come && time.Since(start) > lasts/2 {
			come = true
			newcomer.Go(func() { g.welcome(ctx, t) })
		}
	}
	newcomer.Wait()
	story := stop()
	end()
	clients.all.Wait()
	t.Logf("%s: from %d to at most %d MiB; honest requests: %v", story, before>>20, highest>>20, clients)
	if highest > bound {
		t.Errorf("the gateway had %d MiB, more than %d", highest>>20, bound>>20)
	}
	if !clients.enough() {
		t.Error("honest clients were not served")
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
