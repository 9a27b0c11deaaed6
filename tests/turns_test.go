package tests

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// reload changes the connector's configuration.
func reload(t *testing.T, c *harness.Connector, configuration map[string]any) {
	t.Helper()
	_, before, err := c.Tunnel(t.Context())
	if err == nil {
		err = c.Configure(configuration)
	}
	must(t, err)
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

// 200 requests with large bodies: as many wait as the memory budget allows, and the others are refused. The gateway
// has no more memory than that, another model of the same connector answers meanwhile, and the tunnel stays.
func TestLargeBodiesInLine(t *testing.T) {
	t.Parallel()
	const requests, places, size, budget = 200, 2, 5_000_000, 128 << 20
	r := newRig(t, harness.Options{
		Site: fmt.Sprintf("queue_wait 1h\nqueue_length %d", requests), App: fmt.Sprintf("max_memory %dMiB", budget>>20),
	})
	c := newCrowd(t, r.Gateway, "m", places, map[string]*upstream.Server{"box": r.up})
	c.expectContinue()
	r.serve(t, "other", upstream.Echo)
	others := func() {
		t.Helper()
		for range 10 {
			served(t, r.Post(t, harness.Chat("other", "")), "another model")
		}
	}
	since, before := tunnelSince(t, r), peakMemory(t, r.Gateway.Process)
	c.head = fmt.Sprintf(`{"metadata":{"more":%q},`, strings.Repeat("x", size))
	c.send(t, requests)
	others()
	refused := 0
	harness.Poll(t, limit, "each request refused, running or waiting", nilContext(func() error {
		for ; len(c.answers) > 0; refused++ {
			c.take(t, 1, func(a harness.Answer) bool {
				return a.Status == http.StatusServiceUnavailable && strings.Contains(a.Body, `"code":"overloaded"`) &&
					a.Header.Get("Retry-After") != ""
			})
		}
		running, waiting := c.counts(t)
		if running != places || waiting == 0 || refused+running+waiting != requests {
			return fmt.Errorf("%d are refused, %d running and %d waiting", refused, running, waiting)
		}
		return nil
	}))
	others()
	close(c.release)
	others()
	c.take(t, requests-refused, func(a harness.Answer) bool { return a.Status == http.StatusOK })
	if n := c.check(t, places); n != requests-refused {
		t.Errorf("%d requests came to the server, and %d were refused", n, refused)
	}
	if held := (requests - refused) * size; held > budget {
		t.Errorf("the gateway held %d bytes of bodies", held)
	}
	// As much garbage as data is normal.
	if grown := peakMemory(t, r.Gateway.Process) - before; grown > 2*budget {
		t.Errorf("the gateway's memory grew by %d bytes", grown)
	}
	keepsTunnel(t, r, since)
}

// peakMemory returns the largest resident memory that a process has had, in bytes; on systems other than Linux, 0.
func peakMemory(t *testing.T, p *harness.Process) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	kib, err := p.Kilobytes("status", "VmHWM:")
	must(t, err)
	return kib << 10
}
