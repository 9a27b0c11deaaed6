package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// reload starts a reload. Its result follows.
func (a *runningAgent) reload(c config.Config) <-chan error {
	result := make(chan error, 1)
	go func() { result <- a.Reload(c) }()
	return result
}

// TestReloadRenewsTheTunnel changes fields that the gateway needs, while a request runs. The counters of
// the status go on.
func TestReloadRenewsTheTunnel(t *testing.T) {
	g := startGateway(t)
	working, finish := make(chan struct{}), make(chan struct{})
	var once sync.Once
	server := serveModel(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "begun, ")
		http.NewResponseController(w).Flush()
		once.Do(func() { close(working) })
		<-finish
		io.WriteString(w, "finished")
	})
	a := startAgent(t, g, server.URL, nil)
	first := g.session()
	answer, err := first.roundTrip(post(t.Context(), "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	wait.For(t, working, "the upstream")

	c := g.present(map[string]string{"box": server.URL, "other": server.URL})
	c.Routes, c.MaxRequests = []link.Route{{Model: "*", Upstream: "other"}}, 8
	c.Upstreams["other"] = config.Upstream{BaseURL: server.URL, OneModelAtATime: true}
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	second := g.session()
	if m := wait.For(t, first.got, "the drain"); m != (link.Drain{}) {
		t.Fatalf("got %#v", m)
	}
	if got := fmt.Sprint(second.hello.Upstreams, len(second.hello.Routes),
		second.hello.MaxRequests); got != "[box other] 1 8" || second.hello.Instance == first.hello.Instance {
		t.Errorf("the new hello has upstreams, routes and requests %s: %+v", got, second.hello)
	}
	if !slices.Equal(second.hello.OneModel, []string{"other"}) || first.hello.OneModel != nil {
		t.Errorf("one model at a time: %q, then %q", first.hello.OneModel, second.hello.OneModel)
	}
	if got := a.Status(); got.State != StateOnline || got.Running != 1 || got.Tunnels != 2 || len(got.Upstreams) != 2 ||
		got.Upstreams[0].OneModel || !got.Upstreams[1].OneModel {
		t.Errorf("status %+v", got)
	}
	close(finish)
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "begun, finished" {
		t.Errorf("the request on the old tunnel: %q, %v", body, err)
	}
	if got := second.ask(t); got != "begun, finished" {
		t.Errorf("the new tunnel: %q", got)
	}
	first.close(link.CloseDrained)
	wait.Until(t, "both requests in the status", func() bool { return a.Status().Served == 2 })
}

// TestReloadUnderLoad: 100 reloads fail no request, and no counter goes back.
func TestReloadUnderLoad(t *testing.T) {
	g := startRealGateway(t)
	a := startReal(t, g, nil)
	g.mustAsk(t)
	base := helloServer(t)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var asked atomic.Int64
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := g.ask(t.Context()); err != nil {
					t.Error(err)
				}
				asked.Add(1)
			}
		})
	}
	var served uint64
	for i := range 100 {
		c := config.Config{
			TunnelToken: g.token.Encode(), MaxRequests: 100 + i,
			Upstreams: map[string]config.Upstream{"box": {BaseURL: base + "/v1"}},
		}
		if err := a.Reload(c); err != nil {
			t.Fatal(err)
		}
		s := a.Status()
		if s.Served < served || s.Tunnels != uint64(i+2) {
			t.Errorf("after reload %d: %d requests after %d, %d tunnels", i+1, s.Served, served, s.Tunnels)
		}
		served = s.Served
	}
	close(stop)
	clients.Wait()
	if n := g.Counters(); n.Failed != 0 {
		t.Errorf("%d requests, %+v", asked.Load(), n)
	}
	if s := g.Sessions(); len(s) != 1 || s[0].Limit != 199 {
		t.Errorf("sessions %+v", s)
	}
	if log := a.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Errorf("log %s", log)
	}
}

// TestReloadToNowhere: a configuration that does not connect in time is dropped with the reason. The
// tunnel has noticed nothing.
func TestReloadToNowhere(t *testing.T) {
	g, away := startGateway(t), startGateway(t)
	away.set(func() { away.mute = true })
	a := startAgent(t, g, answerWith(t, "old"), func(a *instance) {
		a.takeoverLimit, a.dialLimit = 5*time.Second, time.Second
	})
	s := g.session()
	err := a.Reload(away.present(map[string]string{"box": answerWith(t, "new")}))
	if err == nil || !strings.HasPrefix(err.Error(), away.token.Server+": "+ErrNoWelcome.Error()) {
		t.Errorf("error %v", err)
	}
	if got := s.ask(t); got != "old" || a.Status().Server != g.token.Server || len(s.got) != 0 || g.count() != 1 {
		t.Errorf("the tunnel answers %q, status %+v", got, a.Status())
	}
	away.hangUp()
}

// TestReloadToARefusal: a token that the gateway refuses ends the reload at once, even if it is of the
// same connector.
func TestReloadToARefusal(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "old"), nil)
	s := g.session()
	denied(g)
	token := g.token
	token.Secret = strings.Repeat("x", len(token.Secret))
	c := g.present(map[string]string{"box": "http://127.0.0.1:1"})
	c.TunnelToken = token.Encode()
	err := a.Reload(c)
	if err == nil || !strings.Contains(err.Error(), "refused the connector") ||
		!strings.Contains(err.Error(), "get a new token") || strings.Contains(err.Error(), token.Secret) {
		t.Errorf("error %v", err)
	}
	if got := s.ask(t); got != "old" || len(s.got) != 0 || a.Status().State != StateOnline {
		t.Errorf("the tunnel answers %q, status %+v", got, a.Status())
	}
	g.set(func() { g.deny = nil })
	c = g.present(map[string]string{"box": answerWith(t, "new"), "other": "http://127.0.0.1:1"})
	if err := a.Reload(c); err != nil {
		t.Errorf("the next reload: %v", err)
	}
	if got := g.session().ask(t); got != "new" {
		t.Errorf("the new tunnel answers %q", got)
	}
}

// TestReloadWithoutATunnel: a configuration whose gateway does not answer is stopped first, whether or not the
// new one connects in time.
func TestReloadWithoutATunnel(t *testing.T) {
	g, away := startGateway(t), startGateway(t)
	g.set(func() { g.mute = true })
	away.set(func() { away.mute = true })
	a := startAgent(t, g, answerWith(t, "old"), func(a *instance) {
		a.dialLimit, a.takeoverLimit = time.Second, time.Nanosecond
		a.tunnels.Add(1) // the last answers of tunnels that drain do not delay the new configuration
	})
	t.Cleanup(a.tunnels.Done)
	wait.Until(t, "a hello", func() bool { return g.count() > 0 })
	if err := a.Reload(away.present(map[string]string{"box": answerWith(t, "new")})); err != nil {
		t.Fatal(err)
	}
	before := g.count()
	wait.Until(t, "another attempt", func() bool { return away.count() > 1 })
	away.set(func() { away.mute = false })
	if got := away.session().ask(t); got != "new" || g.count() != before {
		t.Errorf("the new gateway answers %q; the old one got %d hellos after %d", got, g.count(), before)
	}
	away.hangUp()
}

// TestEndAfterAReload: answers of a replaced instance have the whole limit when the process ends, and none before.
func TestEndAfterAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second
		for end, busy := range map[time.Duration]bool{limit * 5 / 2: true, limit: false} {
			process, stop := context.WithTimeout(t.Context(), limit*3/2)
			start := time.Now()
			if endsInTime(t.Context(), process, limit, func() bool { return busy }) || time.Since(start) != end {
				t.Errorf("busy %v: it ends after %v", busy, time.Since(start))
			}
			stop()
		}
	})
}

// TestSecondReloadWaits for the end of the first one.
func TestSecondReloadWaits(t *testing.T) {
	g, one := startGateway(t), startGateway(t)
	one.set(func() { one.mute = true })
	a := startAgent(t, g, answerWith(t, "old"), func(a *instance) { a.takeoverLimit = 3 * time.Second })
	g.session()
	first := a.reload(one.present(map[string]string{"box": answerWith(t, "one")}))
	wait.Until(t, "the hello of the first one", func() bool { return one.count() > 0 })
	second := a.reload(g.present(map[string]string{"box": answerWith(t, "two"), "other": "http://127.0.0.1:1"}))
	if err := wait.For(t, first, "the first reload"); err == nil {
		t.Error("the first reload succeeded")
	}
	if err := wait.For(t, second, "the second reload"); err != nil {
		t.Error(err)
	}
	if got := g.session().ask(t); got != "two" {
		t.Errorf("the tunnel answers %q", got)
	}
	one.hangUp()
}

// TestReloadWithoutAWelcome: the gateway has replaced the tunnel, but the new one's welcome is lost. The new
// configuration stays, and the old tunnel does not come back, even while another tunnel of the old configuration still
// has answers.
func TestReloadWithoutAWelcome(t *testing.T) {
	for _, answers := range []int{0, 1} {
		g := startGateway(t)
		a := startAgent(t, g, answerWith(t, "old"), func(a *instance) {
			a.dialLimit, a.takeoverLimit = time.Second, 2*time.Second
			a.tunnels.Add(answers)
		})
		s := g.session()
		g.set(func() { g.mute = true })
		reloaded := a.reload(g.present(map[string]string{"box": answerWith(t, "new"), "other": "http://127.0.0.1:1"}))
		wait.Until(t, "the hello", func() bool { return g.count() == 2 })
		s.close(link.CloseReplaced)
		err := wait.For(t, reloaded, "the reload")
		if a.tunnels.Add(-answers); err != nil {
			t.Error(err)
		}
		g.set(func() { g.mute = false })
		if got := g.session().ask(t); got != "new" {
			t.Errorf("the tunnel answers %q", got)
		}
		if log := a.log.String(); strings.Contains(log, "same tunnel token") {
			t.Errorf("log %s", log)
		}
	}
}

// TestReloadAtTheEnd: a reload of an agent that stops, or has stopped, fails.
func TestReloadAtTheEnd(t *testing.T) {
	g, away := startGateway(t), startGateway(t)
	away.set(func() { away.mute = true })
	a := startAgent(t, g, answerWith(t, "old"), nil)
	s := g.session()
	next := away.present(map[string]string{"box": "http://127.0.0.1:1"})
	reloaded := a.reload(next)
	wait.Until(t, "the hello", func() bool { return away.count() > 0 })
	a.stop()
	s.drained(t)
	if err := wait.For(t, reloaded, "the reload"); err != errStopping {
		t.Errorf("error %v", err)
	}
	s.close(link.CloseDrained)
	wait.For(t, a.result, "the agent's end")
	if err := a.Reload(next); err != errStopping {
		t.Errorf("afterwards: %v", err)
	}
}
