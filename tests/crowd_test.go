package tests

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
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
	headers []string
	head    string // of each body, before its other fields
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
		g: g, client: g.Client(t, key), model: model, head: "{", release: make(chan struct{}),
		answers: make(chan harness.Answer, 1000),
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

// send sends n further requests at once. They share the head in memory.
func (c *crowd) send(t *testing.T, n int) {
	t.Helper()
	for range n {
		r := c.client.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", "", c.headers...)
		tail := harness.Chat(c.model, fmt.Sprintf(`,"user":"%d"`, c.sent))[1:]
		r.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(c.head), strings.NewReader(tail))), nil
		}
		r.Body, _ = r.GetBody() // never fails
		r.ContentLength = int64(len(c.head) + len(tail))
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

// expectContinue makes the client send a body only when the gateway reads it. A client that sends it at once, and is
// slow, may find its connection closed before it reads the error.
func (c *crowd) expectContinue() {
	c.client.HTTP.Transport.(*http.Transport).ExpectContinueTimeout = limit
	c.headers = []string{"Expect: 100-continue"}
}

// counts returns how many of the requests the servers run, and how many wait.
func (c *crowd) counts(t *testing.T) (running, waiting int) {
	t.Helper()
	_, length, ok := strings.Cut(c.g.Metrics(t), fmt.Sprintf("postern_queue_length{deployment=%q} ", c.model))
	if ok {
		length, _, _ = strings.Cut(length, "\n")
		var err error
		if waiting, err = strconv.Atoi(length); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.running {
		running += n
	}
	return running, waiting
}

// await waits until the servers run one number of the requests, and another one waits.
func (c *crowd) await(t *testing.T, running, waiting int) {
	t.Helper()
	harness.Poll(t, limit, fmt.Sprintf("%d requests running and %d waiting", running, waiting), nilContext(func() error {
		if r, w := c.counts(t); r != running || w != waiting {
			return fmt.Errorf("%d are running, and %d waiting", r, w)
		}
		return nil
	}))
}

// received returns the numbers of the requests that a server has received, in this order.
func (c *crowd) received(t *testing.T, s *upstream.Server) (numbers []string) {
	t.Helper()
	for _, r := range s.Requests() {
		_, user, _ := bytes.Cut(r.Body[max(len(r.Body)-500, 0):], []byte(`"user":"`))
		if number, _, ok := bytes.Cut(user, []byte(`"`)); ok && r.Model == c.model {
			numbers = append(numbers, string(number))
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
		c.mu.Lock()
		n := c.most[s]
		c.mu.Unlock()
		if n > places {
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
