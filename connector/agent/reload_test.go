package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// config returns a configuration for a gateway, with upstreams by name and base URL.
func (g *fakeGateway) config(upstreams map[string]string) config.Config {
	c := config.Config{TunnelToken: g.token.Encode(), Upstreams: map[string]config.Upstream{}}
	for name, base := range upstreams {
		c.Upstreams[name] = config.Upstream{BaseURL: base + "/v1"}
	}
	return c
}

// present is config for a running agent, on the same transport.
func (g *fakeGateway) present(upstreams map[string]string) config.Config {
	c := g.config(upstreams)
	c.Transport = g.transport
	return c
}

// ask sends a request and returns the answer's body.
func (s *fakeSession) ask(t *testing.T) string {
	t.Helper()
	answer, err := s.roundTrip(post(t.Context(), "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func answerWith(t *testing.T, text string) string {
	return serveModel(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }).URL
}

func TestReloadKeepsTheTunnel(t *testing.T) {
	g := startGateway(t)
	old, next := answerWith(t, "old"), answerWith(t, "new")
	a := startAgent(t, g, old, nil)
	s := g.session()
	if got := s.ask(t); got != "old" {
		t.Fatalf("before: %q", got)
	}
	warm := a.current.Load().config.proxy.Upstreams()["box"]
	if err := a.Reload(g.present(map[string]string{"box": old})); err != nil {
		t.Fatal(err)
	}
	if a.current.Load().config.proxy.Upstreams()["box"] != warm {
		t.Error("an upstream that is the same lost its connections")
	}
	if err := a.Reload(g.present(map[string]string{"box": next})); err != nil {
		t.Fatal(err)
	}
	if got := s.ask(t); got != "new" {
		t.Errorf("after: %q", got)
	}
	more := post(t.Context(), "{}")
	more.URL.Path = "/v1/moderations"
	if _, err := s.roundTrip(more); !errors.Is(err, link.ErrRefused) {
		t.Errorf("what is not allowed: %v", err)
	}
	c := g.present(map[string]string{"box": next})
	c.Allow = []string{"POST /v1/moderations"}
	if err := a.Reload(c); err != nil {
		t.Fatal(err)
	}
	more = post(t.Context(), "{}")
	more.URL.Path = "/v1/moderations"
	if answer, err := s.roundTrip(more); err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("what is allowed now: %v", err)
	}
	if got := g.count(); got != 1 {
		t.Errorf("%d hellos", got)
	}
}

func TestReloadRefusesWhatIsWrong(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "old"), nil)
	s := g.session()
	c := g.present(map[string]string{"box": "http://127.0.0.1:1"})
	c.Routes = []link.Route{{Model: "*", Upstream: "bix"}}
	if err := a.Reload(c); err == nil || !strings.Contains(err.Error(), `did you mean "box"`) {
		t.Errorf("error %v", err)
	}
	c = g.present(map[string]string{"box": "http://127.0.0.1:1"})
	c.Upstreams["box"] = config.Upstream{BaseURL: "http://127.0.0.1:1/v1", APIKeyFile: "/none"}
	if err := a.Reload(c); err == nil || !strings.Contains(err.Error(), "upstreams.box.api_key_file") {
		t.Errorf("error %v", err)
	}
	if got := s.ask(t); got != "old" {
		t.Errorf("it is %q now", got)
	}
}

// TestReloadChecksNewServers: new model servers are checked as soon as the new tunnel is up.
func TestReloadChecksNewServers(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, answerWith(t, "old"), func(a *instance) {
		a.prober.Interval = forever
	})
	g.session()
	if err := a.Reload(g.present(map[string]string{
		"box": answerWith(t, "new"),
		"bix": "http://127.0.0.1:1",
	})); err != nil {
		t.Fatal(err)
	}
	g.session()
	wait.Until(t, "the checks of the new servers", func() bool {
		states := a.Status().Upstreams // by name
		return len(states) == 2 && states[0].State == upstream.StateDown && states[1].State == upstream.StateReachable
	})
}

// drained waits for a drain and confirms it.
func (s *fakeSession) drained(t *testing.T) {
	t.Helper()
	if m := wait.For(t, s.got, "the drain"); m != (link.Drain{}) {
		t.Fatalf("got %#v", m)
	}
	if err := s.control.Send(link.DrainOK{}); err != nil {
		t.Fatal(err)
	}
}

func TestReloadWhileWaiting(t *testing.T) {
	g, other := startGateway(t), startGateway(t)
	g.set(func() { g.deny = &link.Deny{Code: link.DenyUnavailable, Message: "busy", Retry: true} })
	a := startAgent(t, g, answerWith(t, "x"), func(a *instance) {
		a.legs[0].retry.random = func() float64 { return 10_000 }
	})
	wait.Until(t, "the pause", func() bool { return a.Status().State == StateWaiting })
	if p := a.Status().Problem; p == nil || !strings.Contains(p.Reason, "busy") {
		t.Errorf("problem %+v", p)
	}
	if err := a.Reload(other.present(map[string]string{"box": answerWith(t, "new")})); err != nil {
		t.Fatal(err)
	}
	s := other.session() // at once, not after a pause of hours
	if got := s.ask(t); got != "new" {
		t.Errorf("got %q", got)
	}
	t.Cleanup(other.hangUp)
}

func TestStatus(t *testing.T) {
	g := startGateway(t)
	broken := errors.New("")
	server := serveModel(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch string(body) {
		case "missing":
			w.WriteHeader(http.StatusNotFound)
		case "panic":
			panic(http.ErrAbortHandler)
		default:
			io.WriteString(w, "hello")
		}
	})
	a := startAgent(t, g, server.URL, nil)
	s := g.session()
	wait.Until(t, "the tunnel", func() bool { return a.Status().State == StateOnline })
	changed := a.Changed()
	for i, body := range []string{"{}", "missing", "panic"} {
		wait.Until(t, "the request before", func() bool { return len(a.Status().Recent) == i })
		if answer, err := s.roundTrip(post(t.Context(), body)); err == nil {
			_, err = io.ReadAll(answer.Body)
			answer.Body.Close()
			broken = err
		} else {
			broken = err
		}
	}
	if broken == nil {
		t.Error("the broken answer was whole")
	}
	wait.Until(t, "three requests", func() bool { return len(a.Status().Recent) == 3 })
	wait.For(t, changed, "a change")
	strange := post(t.Context(), "{}")
	strange.Host, strange.URL.Path = "nowhere", "/v1/secret-name"
	if _, err := s.roundTrip(strange); err == nil {
		t.Error("a request to an unknown host had an answer")
	}
	wait.Until(t, "four requests", func() bool { return len(a.Status().Recent) == 4 })
	got := a.Status()
	if got.Served != 2 || got.Failed != 2 || got.Running != 0 || got.Tunnels != 1 || got.Server != g.token.Server ||
		got.Connector != testToken.Connector {
		t.Errorf("status %+v", got)
	}
	if got.Tunnel == nil || got.Tunnel.RTT <= 0 || got.Tunnel.Transport != "quic" ||
		got.Tunnel.GatewayVersion != "test" || got.Problem != nil {
		t.Errorf("tunnel %+v, problem %+v", got.Tunnel, got.Problem)
	}
	var lines []string
	for _, r := range got.Recent {
		lines = append(lines, fmt.Sprintf("%s %s %s %d %s %d", r.Method, r.Path, r.Upstream, r.Status, r.Result, r.Bytes))
	}
	want := `POST   0 refused 0
POST /v1/chat/completions box 0 upstream_reset 0
POST /v1/chat/completions box 404 4xx 0
POST /v1/chat/completions box 200 2xx 5`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("recent requests:\n%s", got)
	}
	u := got.Upstreams[0]
	if fmt.Sprint(u.Results) != "map[2xx:1 4xx:1 upstream_reset:1]" || u.Seconds <= 0 ||
		u.Buckets[len(u.Buckets)-1] != 2 || u.State != upstream.StateReachable || u.Running != 0 {
		t.Errorf("upstream %+v", u)
	}
	a.stop()
	wait.For(t, s.got, "the drain")
	if got := a.Status(); got.State != StateDraining || got.Tunnel == nil {
		t.Errorf("while it drains: %+v", got)
	}
	s.close(link.CloseDrained)
	wait.Until(t, "the end", func() bool { return a.Status().State == StateStopped && a.Status().Tunnel == nil })
}
