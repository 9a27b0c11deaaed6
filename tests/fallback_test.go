package tests

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// A connector ends or is killed, and comes back under load. Another model serves meanwhile: no request fails,
// and no model gets one twice. A killed one has no requests then, and the gateway knows it: a model may have
// seen the others.
func TestFallbackUnderLoad(t *testing.T) {
	t.Parallel()
	g := harness.Start(t, harness.Options{Site: "connect_wait 50ms"})
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, g.WithAccount(t, fmt.Sprintf("killed-%v", killed)))
			fallbackUnderLoad(t, p, killed)
		})
	}
}

func fallbackUnderLoad(t *testing.T, p *pair, killed bool) {
	t.Helper()
	p.Manage(t, http.MethodPut, "/deployments/second", map[string]any{"connectors": []string{"b"}, "model": "m"}, nil)
	p.Manage(t, http.MethodPut, "/deployments/m", map[string]any{"connectors": []string{"a"}, "fallback": "second"}, nil)
	p.handle("m",
		upstream.Events(upstream.Role("m"), upstream.Delta("m", "x"), upstream.Finish("m", "stop"), upstream.Done))
	const clients = 8
	first := p.cons[0]
	if killed {
		first.Process.Kill()
		first.Process.WaitExit(t, limit)
		first.WaitState(t, "offline", limit)
	}
	l := p.load(t, clients)
	l.await(t, clients)
	if !killed {
		first.Process.Signal(t, syscall.SIGTERM)
		first.Process.WaitExit(t, limit)
	}
	l.await(t, clients)
	during := p.received()
	first.Start(t)
	l.await(t, clients)
	for _, o := range l.end() {
		if !o.whole() {
			t.Errorf("request %s: status %d, %v, %s", o.id, o.status, o.err, clip(o.body))
		}
	}
	p.once(t, l)
	if after := p.received(); during[1] == 0 || after[0] == during[0] {
		t.Errorf("the upstreams received %v, then %v", during, after)
	}
}

// With order first, the next connector serves only what the one before has no permit for, at once.
func TestOrderFirst(t *testing.T) {
	t.Parallel()
	p := newPair(t, harness.StartInProcess(t, inprocess.Options{}))
	spare := p.NewConnector(t, "one", map[string]any{"upstream": p.ups[1].URL, "max_requests": 1})
	spare.Start(t)
	p.Manage(t, http.MethodPut, "/deployments/m", map[string]any{
		"connectors": []string{"one", "a"}, "options": map[string]any{"order": "first"},
	}, nil)
	p.ups[0].Handle("m", upstream.Echo)
	release, held := make(chan struct{}), make(chan struct{})
	p.ups[1].Handle("m", func(x *upstream.Exchange) {
		close(held) // a second request would panic
		x.Hold(release)
		upstream.Echo(x)
	})
	waits := p.send(t, p.Client, harness.Chat("m", ""))
	<-held
	for range 3 {
		if a := p.Post(t, harness.Chat("m", "")); a.Status != http.StatusOK {
			t.Fatalf("status %d, %s", a.Status, a.Body)
		}
	}
	if got := p.received(); got != [2]int{3, 1} {
		t.Errorf("the upstreams received %v", got)
	}
	close(release)
	if a := <-waits; a.Status != http.StatusOK || a.Err != nil {
		t.Errorf("status %d, %v, %s", a.Status, a.Err, a.Body)
	}
}
