package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/upstream"
)

// A crowd is many numbered requests for one model. Its servers answer one of them for each value of release, and all
// once that is closed.
type crowd struct {
	g       *harness.Gateway
	client  *harness.Client
	model   string
	servers []*upstream.Server
	release chan struct{}
	sent    int
	answers chan harness.Answer

	mu      sync.Mutex
	running map[*upstream.Server]int
	most    map[*upstream.Server]int // at a time
}

// newCrowd registers a model of connectors, by name, which has a number of places at each of their servers.
func newCrowd(t *testing.T, g *harness.Gateway, model string, places int, at map[string]*upstream.Server) *crowd {
	t.Helper()
	_, key := g.Key(t, model, "*")
	c := &crowd{
		g: g, client: g.Client(t, key), model: model, release: make(chan struct{}), answers: make(chan harness.Answer, 1000),
		running: map[*upstream.Server]int{}, most: map[*upstream.Server]int{},
	}
	var names []string
	for name, server := range at {
		names, c.servers = append(names, name), append(c.servers, server)
		server.Handle(model, func(x *upstream.Exchange) {
			c.count(server, 1)
			x.Hold(c.release)
			c.count(server, -1) // before the gateway knows the end of the answer
			upstream.Echo(x)
		})
	}
	g.Manage(t, http.MethodPut, "/deployments/"+model,
		map[string]any{"connectors": names, "max_concurrency": places}, nil)
	return c
}

func (c *crowd) count(s *upstream.Server, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[s] += n
	c.most[s] = max(c.most[s], c.running[s])
}

// send sends n further requests at once.
func (c *crowd) send(t *testing.T, n int) {
	t.Helper()
	for range n {
		r := c.client.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions",
			harness.Chat(c.model, fmt.Sprintf(`,"user":"%d"`, c.sent)))
		c.sent++
		go func() {
			a, err := c.client.Send(r)
			if err != nil {
				a.Err = err
			}
			c.answers <- a
		}()
	}
}

// next lets the servers answer n requests.
func (c *crowd) next(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case c.release <- struct{}{}:
		case <-time.After(limit):
			t.Fatalf("no server has a request for %s", c.model)
		}
	}
	c.take(t, n, func(a harness.Answer) bool { return a.Status == http.StatusOK })
}

// take takes n answers that must be as expected.
func (c *crowd) take(t *testing.T, n int, expected func(harness.Answer) bool) {
	t.Helper()
	for range n {
		if a := wait.For(t, c.answers, "an answer"); a.Err != nil || !expected(a) {
			t.Errorf("%s: status %d, %v, %s", c.model, a.Status, a.Err, clip(a.Body))
		}
	}
}

// await waits until the servers run one number of the requests, and another one waits.
func (c *crowd) await(t *testing.T, running, waiting int) {
	t.Helper()
	metric := fmt.Sprintf("postern_queue_length{deployment=%q}", c.model)
	harness.Poll(t, limit, fmt.Sprintf("%d requests running and %d waiting", running, waiting), nilContext(func() error {
		c.mu.Lock()
		n := 0
		for _, at := range c.running {
			n += at
		}
		c.mu.Unlock()
		page := c.g.Metrics(t)
		none := waiting == 0 && !strings.Contains(page, metric)
		if n != running || !none && !strings.Contains(page, fmt.Sprintf("%s %d\n", metric, waiting)) {
			_, rest, _ := strings.Cut(page, metric)
			length, _, _ := strings.Cut(rest, "\n")
			return fmt.Errorf("%d are running, and waiting are: %q", n, length)
		}
		return nil
	}))
}

// received returns the numbers of the requests that a server has received, in this order.
func (c *crowd) received(t *testing.T, s *upstream.Server) (numbers []string) {
	t.Helper()
	for _, r := range s.Requests() {
		var body struct{ User string }
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		if r.Model == c.model {
			numbers = append(numbers, body.User)
		}
	}
	return numbers
}

// check checks that no server had more requests at a time than places, and none of the requests came twice. It
// returns how many came.
func (c *crowd) check(t *testing.T, places int) int {
	t.Helper()
	seen := map[string]bool{}
	for _, s := range c.servers {
		if n := c.most[s]; n > places {
			t.Errorf("a server of %s had %d requests at a time", c.model, n)
		}
		for _, number := range c.received(t, s) {
			if seen[number] {
				t.Errorf("request %s of %s came twice", number, c.model)
			}
			seen[number] = true
		}
	}
	return len(seen)
}

// reload changes the connector's configuration.
func reload(t *testing.T, c *harness.Connector, configuration map[string]any) {
	t.Helper()
	_, before, err := c.Tunnel(t.Context())
	if err == nil {
		err = c.Configure(configuration)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Process.Signal(t, syscall.SIGHUP)
	harness.Poll(t, limit, "another tunnel", nilContext(func() error {
		state, since, err := c.Tunnel(t.Context())
		if err == nil && (state != "online" || since == before) {
			err = fmt.Errorf("it is %s since %s", state, since)
		}
		return err
	}))
}

// A connector is killed that a line and two other connectors wait for, and that is the only one of another line. All
// requests of the first line are answered by the others, those of the second are refused. None comes to two servers.
func TestConnectorLostWithLines(t *testing.T) {
	t.Parallel()
	const waiting = 50
	g := harness.Start(t, harness.Options{Site: "queue_wait 1h\nconnect_wait 100ms"})
	at, lost := map[string]*upstream.Server{}, upstream.Start(t)
	// The gateway notices the end of a TCP connection at once.
	c := g.NewConnector(t, "lost", map[string]any{"upstream": lost.URL, "transport": "websocket"})
	c.Start(t)
	only := newCrowd(t, g, "only", 1, map[string]*upstream.Server{"lost": lost})
	for _, name := range []string{"a", "b"} {
		at[name] = upstream.Start(t)
		g.Connector(t, name, at[name].URL)
	}
	at["lost"] = lost
	all := newCrowd(t, g, "all", 1, at)
	only.send(t, 1+waiting)
	only.await(t, 1, waiting)
	all.send(t, len(at)+waiting)
	all.await(t, len(at), waiting)

	c.Process.Kill()
	unreachable := func(a harness.Answer) bool {
		return a.Status == http.StatusBadGateway && strings.Contains(a.Body, `"code":"upstream_unreachable"`)
	}
	all.take(t, 1, unreachable)
	refused := 0
	only.take(t, 1+waiting, func(a harness.Answer) bool {
		offline := a.Status == http.StatusServiceUnavailable && strings.Contains(a.Body, `"code":"deployment_offline"`) &&
			a.Header.Get("Retry-After") != ""
		if offline {
			refused++
		}
		return offline || unreachable(a)
	})
	if n := only.check(t, 1); n != 1 || refused != waiting {
		t.Errorf("with its only connector lost, %d requests were refused, and %d came to the server", refused, n)
	}
	all.await(t, len(at)-1, waiting)
	close(all.release)
	all.take(t, len(at)-1+waiting, func(a harness.Answer) bool { return a.Status == http.StatusOK })
	if n := all.check(t, 1); n != len(at)+waiting {
		t.Errorf("%d requests came to the servers", n)
	}
	if got := all.received(t, lost); len(got) != 1 {
		t.Errorf("the server of the lost connector received %v", got)
	}
}

// Reloads of the gateway and of the connector while a line is full: no request is lost, the order stays, and the
// server has one at a time.
func TestReloadsWithAFullLine(t *testing.T) {
	t.Parallel()
	const length = 8
	site := fmt.Sprintf("queue_wait 1h\nqueue_length %d", length)
	r := newRig(t, harness.Options{Site: site})
	c := newCrowd(t, r.Gateway, "m", 1, map[string]*upstream.Server{"box": r.up})
	sendInOrder := func() {
		t.Helper()
		for waiting := range length + 1 {
			if waiting == 0 && c.sent > 0 {
				continue // one runs
			}
			c.send(t, 1)
			c.await(t, 1, waiting)
		}
	}
	full := func() {
		t.Helper()
		harness.Poll(t, limit, "an answer", nilContext(func() error { // a reload can reset a new connection
			a, err := c.client.Send(c.client.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions",
				harness.Chat("m", ""))) // of the same key
			if err == nil && (a.Status != http.StatusTooManyRequests || !strings.Contains(a.Body, "queue_full")) {
				t.Fatalf("a request for a full line: status %d, %s", a.Status, a.Body)
			}
			return err
		}))
	}
	refill := func() {
		t.Helper()
		full()
		c.next(t, 1)
		c.await(t, 1, length-1)
		c.send(t, 1)
		c.await(t, 1, length)
	}
	sendInOrder()
	full()
	r.Configure(t, harness.Options{Site: site + "\nkeep_alive 7s"})
	r.Reload(t)
	refill()
	reload(t, r.con, map[string]any{"upstream": r.up.URL, "transport": "quic", "max_requests": 7})
	refill()
	c.next(t, 1) // the first one in the new tunnel
	c.send(t, 1)
	c.await(t, 1, length)
	r.Configure(t, harness.Options{Site: "queue_wait 1h\nqueue_length 2"}) // of requests that come from now on
	r.Reload(t)
	full()
	close(c.release)
	c.take(t, 1+length, func(a harness.Answer) bool { return a.Status == http.StatusOK })
	var want []string
	for n := range c.sent {
		want = append(want, fmt.Sprint(n))
	}
	if got := c.received(t, r.up); !slices.Equal(got, want) {
		t.Errorf("the requests came in the order %v", got)
	}
	c.check(t, 1)
}

// A connector changes its tunnel while requests run and wait: by a reload, by another process, and by the end of
// both. The server never has more than max_concurrency, and gets each request once.
func TestTakeoverWithALine(t *testing.T) {
	t.Parallel()
	const places, waiting, step = 50, 50, 10
	r := newRig(t, harness.Options{Site: "queue_wait 1h\nconnect_wait 1h\nqueue_length 100"})
	c := newCrowd(t, r.Gateway, "m", places, map[string]*upstream.Server{"box": r.up})
	c.send(t, places+waiting)
	c.await(t, places, waiting)

	reload(t, r.con, map[string]any{"upstream": r.up.URL, "transport": "quic", "max_requests": 2 * places})
	c.await(t, places, waiting)
	c.next(t, step)
	c.await(t, places, waiting-step)

	first := r.con.Process
	r.con.Start(t) // a second process, which takes over
	c.next(t, step)
	c.await(t, places, waiting-2*step)

	for _, p := range []*harness.Process{first, r.con.Process} {
		p.Signal(t, syscall.SIGTERM)
	}
	r.con.WaitState(t, "offline", limit)
	c.next(t, step)
	c.await(t, places-step, waiting-2*step)
	r.con.Start(t)
	c.await(t, places, waiting-3*step)
	close(c.release)
	c.take(t, places+waiting-3*step, func(a harness.Answer) bool { return a.Status == http.StatusOK })
	if n := c.check(t, places); n != places+waiting {
		t.Errorf("%d requests came to the server", n)
	}
}
