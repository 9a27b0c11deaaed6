package tests

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/upstream"
)

// A deployment with a bound: the keys take turns, waiting streams get pings,
// and another bound is in force at once.
func TestMaxConcurrency(t *testing.T) {
	t.Parallel()
	p := newPair(t, harness.Start(t, harness.Options{Site: "keep_alive 100ms\nqueue_wait 1h"}))
	_, other := p.Key(t, "other", "*")
	second := p.Gateway.Client(t, other)
	p.deploy(t, "m", 1) // at each of two model servers
	release := make(chan struct{})
	p.handle("m", func(x *upstream.Exchange) { x.Hold(release); upstream.Echo(x) })
	waiting := func(running, length int) {
		t.Helper()
		harness.Poll(t, limit, fmt.Sprintf("%d requests running and %d waiting", running, length), nilContext(func() error {
			got := p.received()
			metric := fmt.Sprintf("postern_queue_length{deployment=\"m\"} %d\n", length)
			shown := p.Metrics(t)
			none := length == 0 && !strings.Contains(shown, "postern_queue_length{")
			if got[0]+got[1] != running || !none && !strings.Contains(shown, metric) {
				return fmt.Errorf("received %v, the metric %q is there: %v", got, metric, strings.Contains(shown, metric))
			}
			return nil
		}))
	}
	var answers []<-chan harness.Answer
	for i := range 5 {
		answers = append(answers, p.send(t, p.Client, harness.Chat("m", fmt.Sprintf(`,"user":"one-%d"`, i))))
		waiting(min(i+1, 2), max(i-1, 0))
	}
	answers = append(answers, p.send(t, second, harness.Chat("m", `,"user":"two"`)))
	waiting(2, 4)
	stream := p.Stream(t, harness.Chat("m", `,"stream":true`))
	for range 3 {
		if event, err := stream.Next(); err != nil || !strings.HasPrefix(event, ":") {
			t.Errorf("a waiting stream got %q, %v; want pings", event, err)
		}
	}
	stream.Close()
	waiting(2, 4) // it left the queue
	p.deploy(t, "m", 2)
	waiting(4, 2)
	users := ""
	for _, u := range p.ups {
		for _, r := range u.Requests() {
			users += string(r.Body)
		}
	}
	if !strings.Contains(users, `"two"`) || strings.Contains(users, `"one-3"`) {
		t.Errorf("the other key has not had its turn; the models have seen %s", users)
	}
	p.deploy(t, "m", 0)
	waiting(6, 0)
	close(release)
	for _, c := range answers {
		if a := <-c; a.Status != 200 || a.Err != nil {
			t.Errorf("status %d, %v, %s", a.Status, a.Err, a.Body)
		}
	}
}

// A queued request goes to the connector that its deployment gets meanwhile.
func TestQueuedRequestTakesTheNewWay(t *testing.T) {
	t.Parallel()
	p := newPair(t, harness.Start(t, harness.Options{Site: "queue_wait 1h"}))
	release := make(chan struct{})
	p.handle("m", func(x *upstream.Exchange) { x.Hold(release); upstream.Echo(x) })
	set := func(connector string) {
		p.Manage(t, http.MethodPut, "/deployments/m",
			map[string]any{"connectors": []string{connector}, "max_concurrency": 1}, nil)
	}
	set("a")
	first := p.send(t, p.Client, harness.Chat("m", ""))
	p.ups[0].WaitRunning(t, 1)
	second, third := p.send(t, p.Client, harness.Chat("m", "")), p.send(t, p.Client, harness.Chat("m", ""))
	harness.Poll(t, limit, "two requests waiting", nilContext(func() error {
		if !strings.Contains(p.Metrics(t), `postern_queue_length{deployment="m"} 2`) {
			return fmt.Errorf("there are others")
		}
		return nil
	}))
	if got := p.received(); got != [2]int{1, 0} {
		t.Errorf("the upstreams received %v before there was room", got)
	}
	set("b") // which has a place
	p.ups[1].WaitRunning(t, 1)
	p.Manage(t, http.MethodDelete, "/deployments/m", nil, nil)
	for range 2 {
		release <- struct{}{}
	}
	statuses := map[int]int{}
	for _, c := range []<-chan harness.Answer{first, second, third} {
		statuses[(<-c).Status]++
	}
	if statuses[200] != 2 || statuses[404] != 1 {
		t.Errorf("statuses %v; want two answers, and 404 for the one that waited for a deployment that was removed", statuses)
	}
	if got := p.received(); got != [2]int{1, 1} {
		t.Errorf("the upstreams received %v", got)
	}
}

func TestConnectorIsFull(t *testing.T) {
	t.Parallel()
	shared := harness.Start(t, harness.Options{Site: "queue_wait 100ms"})
	for _, transport := range []string{"quic", "websocket"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			testConnectorIsFull(t, shared.WithAccount(t, transport), transport)
		})
	}
}

// A connector runs at most max_requests. Another request goes to another connector of the model, or is refused
// in the caller's dialect after queue_wait.
func testConnectorIsFull(t *testing.T, g *harness.Gateway, transport string) {
	p := newPair(t, g)
	one := "one-" + transport // as metrics name it
	small := p.NewConnector(t, "small",
		map[string]any{"upstream": p.ups[0].URL, "transport": transport, "max_requests": 2})
	small.Start(t)
	for name, connectors := range map[string][]string{one: {"small"}, "two": {"small", "b"}} {
		p.Manage(t, http.MethodPut, "/deployments/"+name, map[string]any{"connectors": connectors, "model": "m"}, nil)
	}
	release := make(chan struct{})
	p.ups[0].Handle("m", func(x *upstream.Exchange) { x.Hold(release); upstream.Echo(x) })
	p.ups[1].Handle("m", upstream.Echo)
	var running []<-chan harness.Answer
	for range 2 {
		running = append(running, p.send(t, p.Client, harness.Chat(one, "")))
	}
	p.ups[0].WaitRunning(t, 2)
	for path, body := range map[string]string{
		"/v1/chat/completions": harness.Chat(one, ""),
		"/v1/messages":         messagesRequest(one, ""),
		"/v1/responses":        responsesRequest(one, ""),
	} {
		a := p.Do(t, http.MethodPost, path, body)
		if a.Status != 429 || !strings.Contains(a.Body, `"rate_limit_error"`) || !strings.Contains(a.Body, "queue_timeout") ||
			a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d, %s", path, a.Status, a.Body)
		}
	}
	for range 5 {
		served(t, p.Post(t, harness.Chat("two", "")), "with another connector")
	}
	metrics := p.Metrics(t)
	for _, line := range []string{
		fmt.Sprintf(`postern_queue_rejected_total{deployment=%q,reason="timeout"} 3`, one),
		fmt.Sprintf(`postern_tunnel_requests{connector=%q,transport=%q} 2`, small.ID, transport),
		fmt.Sprintf(`postern_tunnel_requests_limit{connector=%q,transport=%q} 2`, small.ID, transport),
		fmt.Sprintf(`postern_tunnel_requests_limit{connector=%q,transport="quic"} 1024`, p.cons[1].ID),
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("no metric %s", line)
		}
	}
	close(release)
	for _, r := range running {
		if a := <-r; a.Status != 200 {
			t.Errorf("one that ran: status %d, %s, %v", a.Status, a.Body, a.Err)
		}
	}
}

// The requests of all deployments wait for the places of a connector. A waiting request ends with its key, and leaves
// nothing: the next one gets its place.
func TestKeyEndsInLine(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{Router: serve.Router{QueueWait: time.Hour}})
	const most = 64
	small := r.NewConnector(t, "small", map[string]any{"upstream": r.up.URL, "max_requests": most})
	small.Start(t)
	release := make(chan struct{})
	r.up.Handle("slow", func(x *upstream.Exchange) { x.Hold(release); upstream.Echo(x) })
	r.up.Handle("quick", upstream.Echo)
	r.Deploy(t, "slow", small.ID, "", "slow")
	r.Deploy(t, "quick", small.ID, "", "quick")
	send := func(c *harness.Client, model string, n int) <-chan harness.Answer {
		answers := make(chan harness.Answer, n)
		for range n {
			request := c.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", harness.Chat(model, ""))
			go func() {
				a, err := c.Send(request)
				a.Err = errors.Join(a.Err, err)
				answers <- a
			}()
		}
		return answers
	}
	id, secret := r.Key(t, "greedy", "*")
	waiting := send(r.Gateway.Client(t, secret), "slow", most+16)
	r.up.WaitRunning(t, most)
	other := send(r.Client, "quick", 1)
	r.Revoke(t, id)
	for range most + 16 {
		if a := wait.For(t, waiting, "the end of a request"); a.Status != http.StatusUnauthorized {
			t.Errorf("after the revocation: status %d, %v, %s", a.Status, a.Err, a.Body)
		}
	}
	if a := wait.For(t, other, "an answer"); a.Status != 200 || a.Err != nil {
		t.Errorf("another key: status %d, %v, %s", a.Status, a.Err, a.Body)
	}
	r.up.WaitRunning(t, 0)
	again := send(r.Client, "slow", most)
	r.up.WaitRunning(t, most)
	close(release)
	for range most {
		if a := wait.For(t, again, "an answer"); a.Status != 200 {
			t.Errorf("after the flood: status %d, %v, %s", a.Status, a.Err, a.Body)
		}
	}
}
