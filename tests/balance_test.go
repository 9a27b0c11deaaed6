package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// A pair is a gateway with two connectors, "a" and "b", to a scripted upstream
// each, and a key for everything.
type pair struct {
	*harness.Gateway
	*harness.Client
	ups  [2]*upstream.Server
	cons [2]*harness.Connector
}

func newPair(t *testing.T, g *harness.Gateway) *pair {
	t.Helper()
	p := &pair{Gateway: g}
	_, key := p.Gateway.Key(t, "all", "*")
	p.Client = p.Gateway.Client(t, key)
	for i, name := range []string{"a", "b"} {
		p.ups[i] = upstream.Start(t)
		p.cons[i] = p.Connector(t, name, p.ups[i].URL)
	}
	return p
}

// deploy registers a model that both connectors have.
func (p *pair) deploy(t *testing.T, name string, maxConcurrency int) {
	t.Helper()
	p.Manage(t, http.MethodPut, "/deployments/"+name, map[string]any{
		"connectors": []string{"a", "b"}, "max_concurrency": maxConcurrency, "options": map[string]any{"affinity": "off"},
	}, nil)
}

// handle sets the handler for requests for a model on both upstreams.
func (p *pair) handle(name string, h upstream.Handler) {
	for _, u := range p.ups {
		u.Handle(name, h)
	}
}

// received is how many requests each upstream has received.
func (p *pair) received() (n [2]int) {
	for i, u := range p.ups {
		n[i] = len(u.Requests())
	}
	return n
}

// send sends a request from a goroutine of its own.
func (p *pair) send(t *testing.T, c *harness.Client, body string) <-chan harness.Answer {
	done := make(chan harness.Answer, 1)
	go func() {
		a, err := c.Send(c.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions", body))
		if err != nil {
			a.Err = err
		}
		done <- a
	}()
	return done
}

// Requests go to the connector with the fewest.
func TestFewestInFlight(t *testing.T) {
	t.Parallel()
	p := newPair(t, harness.StartInProcess(t, inprocess.Options{}))
	p.deploy(t, "m", 0)
	release := make(chan struct{})
	p.handle("m", func(x *upstream.Exchange) { x.Hold(release); upstream.Echo(x) })
	const n = 12
	var answers []<-chan harness.Answer
	for i := range n {
		answers = append(answers, p.send(t, p.Client, harness.Chat("m", "")))
		harness.Poll(t, limit, "the request being at a model", nilContext(func() error {
			if got := p.received(); got[0]+got[1] != i+1 {
				return fmt.Errorf("received %v of %d", got, i+1)
			}
			return nil
		}))
	}
	if got := p.received(); got != [2]int{n / 2, n / 2} {
		t.Errorf("the upstreams received %v requests, want %d each", got, n/2)
	}
	close(release)
	for _, c := range answers {
		if a := <-c; a.Status != 200 || a.Err != nil {
			t.Errorf("status %d, %v, %s", a.Status, a.Err, a.Body)
		}
	}
}

// A connector that is offline, or whose model server is down, gets no requests. When it comes back, it gets
// its share again. A request waits only if there is no other connector.
func TestOtherConnectorTakesOver(t *testing.T) {
	t.Parallel()
	p := newPair(t, harness.Start(t, harness.Options{Site: "connect_wait 2m"}))
	p.deploy(t, "m", 0)
	p.handle("m", upstream.Echo)
	down := p.NewConnector(t, "down", map[string]any{"upstream": "http://" + harness.FreeAddr(t)})
	down.Start(t)
	p.Manage(t, http.MethodPut, "/deployments/half",
		map[string]any{"connectors": []string{"down", "b"}, "model": "m"}, nil)
	p.Manage(t, http.MethodPut, "/deployments/none", map[string]any{"connectors": []string{"down"}, "model": "m"}, nil)
	expect := func(model string) {
		t.Helper()
		for range 10 { // in time, so without a wait
			if a := p.Post(t, harness.Chat(model, "")); a.Status != 200 {
				t.Fatalf("%s: status %d, %s", model, a.Status, a.Body)
			}
		}
	}
	expect("half")
	if got := p.received(); got != [2]int{0, 10} {
		t.Errorf("the upstreams received %v", got)
	}
	p.Post(t, harness.Chat("none", "")).ExpectError(t, 502, "server_error", "upstream_unreachable")

	p.cons[0].Process.Kill()
	p.cons[0].Process.WaitExit(t, limit)
	p.cons[0].Start(t) // replaces the dead tunnel
	p.cons[1].Process.Signal(t, syscall.SIGTERM)
	p.cons[1].Process.WaitExit(t, limit)
	expect("m")
	if got := p.received(); got != [2]int{10, 10} {
		t.Errorf("with one connector the upstreams received %v", got)
	}
	p.cons[0].Process.Signal(t, syscall.SIGTERM)
	p.cons[0].Process.WaitExit(t, limit)
	p.cons[0].WaitState(t, "offline", limit)
	waits := p.send(t, p.Client, harness.Chat("m", ""))
	waitInflight(t, p.Gateway, "m", 1)
	select {
	case a := <-waits:
		t.Fatalf("a request did not wait: status %d, %s, %v", a.Status, a.Body, a.Err)
	default:
	}
	p.cons[1].Start(t)
	if a := <-waits; a.Status != 200 {
		t.Errorf("a request that waited: status %d, %s, %v", a.Status, a.Body, a.Err)
	}
}

// waitInflight waits until the gateway has n requests for a deployment.
func waitInflight(t *testing.T, g *harness.Gateway, name string, n int) {
	t.Helper()
	want := fmt.Sprintf("postern_inflight_requests{deployment=%q,dialect=\"chat\"} %d\n", name, n)
	harness.Poll(t, limit, want, nilContext(func() error {
		if !strings.Contains(g.Metrics(t), want) {
			return errors.New("there are others")
		}
		return nil
	}))
}

// A connector is killed under load. Streams that have begun end with an error; no model gets a request twice.
// Requests that were sent to the dead connector before the gateway noticed may have reached the model. They
// fail, too, with a proper error, and there are few.
func testConnectorKilledUnderLoad(t *testing.T, g *harness.Gateway) {
	p := newPair(t, g)
	p.deploy(t, "m", 0)
	var hold atomic.Bool
	held := make(chan struct{}, 100)
	for i, u := range p.ups {
		u.Handle("m", func(x *upstream.Exchange) {
			x.Stream()
			x.Chunk(upstream.Role("m"))
			for range 10 {
				x.Sleep(20 * time.Millisecond)
				x.Chunk(upstream.Delta("m", "x"))
				if i == 0 && hold.Load() {
					held <- struct{}{}
					x.Hold(nil)
				}
			}
			x.Chunk(upstream.Finish("m", "stop"))
			x.Chunk(upstream.Done)
			x.End()
		})
	}
	const clients = 16
	l := p.load(t, clients)
	l.await(t, clients)
	hold.Store(true)
	for range 4 { // the first has begun long before the last
		<-held
	}
	p.cons[0].Process.Kill()
	hold.Store(false)
	p.cons[0].Process.WaitExit(t, limit)
	for range 10 { // the dead tunnel soon gets
		l.await(t, 1)
	}
	p.cons[0].Start(t) // takes the place of the dead tunnel, whose requests end
	begun, blind, good := 0, 0, 0
	for _, o := range l.end() {
		switch {
		case o.whole():
			good++
		case o.status == 200 && strings.Contains(o.body, upstream.Role("m")) &&
			strings.Contains(o.body, `"code":"upstream_error"`):
			begun++
		case o.status == 502 && strings.Contains(o.body, `"code":"upstream_unreachable"`),
			o.status == 503 && strings.Contains(o.body, "is not responding"): // by when it was started again
			blind++
		default:
			t.Errorf("request %s: status %d, %v, %s", o.id, o.status, o.err, clip(o.body))
		}
	}
	t.Logf("%d whole, %d broken in the stream, %d given to the dead connector", good, begun, blind)
	if begun == 0 || begun+blind > clients {
		t.Errorf("%d broken in the stream, %d given to the dead connector, of %d clients", begun, blind, clients)
	}
	p.once(t, l)
}

// traffic is a set of clients that send one streamed request after the other.
type traffic struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	outcomes []outcome
}

// outcome is the result of one request.
type outcome struct {
	id     string // in the request, so that the upstreams recognize it
	client int
	status int
	body   string
	err    error
}

// whole reports whether the answer is complete and without an error.
func (o outcome) whole() bool {
	return o.status == 200 && o.err == nil && strings.HasSuffix(o.body, upstream.Finish("m", "stop")+upstream.Done)
}

// load starts n clients.
func (p *pair) load(t *testing.T, n int) *traffic {
	l := &traffic{stop: make(chan struct{})}
	for client := range n {
		l.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				id := fmt.Sprintf("load-%d-%d", client, i)
				a, err := p.Send(p.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions",
					harness.Chat("m", `,"stream":true,"user":"`+id+`"`)))
				if err == nil {
					err = a.Err
				}
				l.mu.Lock()
				l.outcomes = append(l.outcomes, outcome{id, client, a.Status, a.Body, err})
				l.mu.Unlock()
			}
		})
	}
	return l
}

// served returns the clients that have had an answer since there were n.
func (l *traffic) served(n int) map[int]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	clients := map[int]bool{}
	for _, o := range l.outcomes[n:] {
		clients[o.client] = true
	}
	return clients
}

// await waits until this number of clients have had an answer from now on.
func (l *traffic) await(t *testing.T, clients int) {
	t.Helper()
	before := l.count()
	harness.Poll(t, limit, "clients being served", nilContext(func() error {
		if n := len(l.served(before)); n < clients {
			return fmt.Errorf("%d of %d are", n, clients)
		}
		return nil
	}))
}

func (l *traffic) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.outcomes)
}

// end ends the load and returns the outcomes of its requests.
func (l *traffic) end() []outcome {
	close(l.stop)
	l.wg.Wait()
	return l.outcomes
}

// once checks that the models got no request twice, and each request whose answer is whole.
func (p *pair) once(t *testing.T, l *traffic) {
	t.Helper()
	seen := map[string]int{}
	for _, u := range p.ups {
		for _, r := range u.Requests() {
			var body struct{ User string }
			must(t, json.Unmarshal(r.Body, &body))
			if seen[body.User]++; seen[body.User] > 1 {
				t.Errorf("the models have seen request %s twice", body.User)
			}
		}
	}
	for _, o := range l.outcomes {
		if o.whole() && seen[o.id] != 1 {
			t.Errorf("the models have seen request %s %d times", o.id, seen[o.id])
		}
	}
}
