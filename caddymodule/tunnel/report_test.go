package tunnel

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// reports is a report of one upstream.
func reports(name string, reachable bool, models ...string) link.Report {
	return link.Report{Upstreams: []link.UpstreamReport{{Name: name, Reachable: reachable, Models: models}}}
}

// send sends a message of the connector.
func (c *testConnector) send(t testing.TB, m link.Message) {
	t.Helper()
	if err := c.control.Send(m); err != nil {
		t.Fatal(err)
	}
}

func TestReport(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		events := make(chan Event, 100)
		g.Subscribe(func(e Event) {
			if e.Reported {
				events <- e
			}
		})
		c := g.connect(t, "con_1", echo)
		s := g.mustSession(t, "con_1")
		state := func() health.State {
			return s.Info().DeploymentRoute(Target{Name: "m"}).State
		}
		if got := s.States(); len(got) != 1 || got[0].Known || state() != health.Available {
			t.Errorf("before a report: %+v", got)
		}
		c.send(t, reports("ollama", true, "m:latest", "a"))
		if e := wait.For(t, events, "the report"); !e.Online || e.Connector != "con_1" {
			t.Errorf("event = %+v", e)
		}
		up := s.States()[0]
		if !up.Known || !up.Reachable || !slices.Equal(up.Models, []string{"a", "m:latest"}) || state() != health.Available {
			t.Errorf("state = %+v", up)
		}
		loading := reports("ollama", true, "m:latest", "a")
		loading.Upstreams[0].Status = map[string]string{"m:latest": "loading"}
		c.send(t, loading)
		wait.For(t, events, "the report of a model that is loading")
		if r := s.Info().DeploymentRoute(Target{Name: "m"}); r.State != health.Available || r.Status != "loading" {
			t.Errorf("a model that is loading: %+v", r)
		}
		c.send(t, reports("ollama", true, "a"))
		wait.For(t, events, "the second report")
		if got := s.States()[0]; got.Since != up.Since || state() != health.ModelMissing {
			t.Errorf("model gone: %+v", got)
		}
		c.send(t, reports("ollama", false))
		wait.For(t, events, "the third report")
		if state() != health.ServerDown {
			t.Errorf("server down: %s", state())
		}
		// The same again is no news; nor is what breaks the limits, or is of an
		// upstream that the connector does not have.
		c.send(t, reports("ollama", false))
		c.send(t, reports("ollama", true, strings.Repeat("x", 1000)))
		c.send(t, reports("other", true))
		wait.For(t, events, "the report of another upstream")
		if got := s.States(); len(got) != 1 || got[0].Name != "ollama" || got[0].Known {
			t.Errorf("after a report of another upstream: %+v", got)
		}
		if body, err := g.do(t, "con_1", "still here"); err != nil || body != "still here" {
			t.Errorf("request: %q, %v", body, err)
		}
		select {
		case e := <-events:
			t.Errorf("unexpected %+v", e)
		default:
		}
	})
}

// Edges without a tunnel of the connector are in its info. Invalid ones are not.
func TestNotAt(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{Authenticate: allow})
		c := g.connect(t, "con_1", echo)
		notAt := func() []NotAt { return g.mustSession(t, "con_1").Info().NotAt }
		r := reports("box", true, "m")
		r.NotAt = []link.NotAt{{Edge: "edge-b", Reason: "no answer", Millis: 60_000}}
		c.send(t, r)
		wait.Until(t, "the report", func() bool { return len(notAt()) == 1 })
		n := notAt()[0]
		since := time.Since(n.Since)
		if n.Edge != "edge-b" || n.Reason != "no answer" || since < time.Minute || since > time.Hour {
			t.Errorf("%+v", n)
		}
		for _, invalid := range []link.NotAt{
			{Edge: "\x1b", Reason: "x"},
			{Edge: "b"},
			{Edge: "b", Reason: "x", Millis: -1},
			{Edge: "b", Reason: "x", Millis: math.MaxInt64},
			{Edge: "b", Reason: strings.Repeat("x", 257)},
		} {
			r.NotAt = []link.NotAt{invalid}
			if r.Check() == nil {
				t.Errorf("valid: %+v", invalid)
			}
		}
		r.NotAt = nil
		c.send(t, r)
		wait.Until(t, "the next report", func() bool { return len(notAt()) == 0 })
	})
}

// The hello says which servers load one model at a time, before and after a report.
func TestOneModelUpstreams(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		h := hello("con_1")
		h.Upstreams, h.OneModel = []string{"ollama", "vllm"}, []string{"ollama"}
		c, err := g.dial(t, g.socket(t), h, echo)
		if err != nil {
			t.Fatal(err)
		}
		reported := make(chan Event, 1)
		g.Subscribe(func(e Event) {
			if e.Reported {
				reported <- e
			}
		})
		info := g.mustSession(t, "con_1").Info()
		if !info.States[0].OneModel || info.States[1].OneModel ||
			!info.DeploymentRoute(Target{Name: "m", Upstream: "ollama"}).OneModel {
			t.Errorf("before a report: %+v", info)
		}
		c.send(t, reports("ollama", true, "m"))
		wait.For(t, reported, "the report")
		if states := g.mustSession(t, "con_1").States(); !states[0].OneModel || !states[0].Known {
			t.Errorf("after a report: %+v", states)
		}
	})
}

// A connector that reports without pause is read slowly, and keeps its tunnel.
func TestReportsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		g := new(network).newGateway(t, time.Millisecond, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		told := make(chan Event, 1000)
		g.Subscribe(func(e Event) {
			if e.Reported {
				told <- e
			}
		})
		c := g.connect(t, "con_1", echo)
		c.send(t, reports("a b", true))
		c.send(t, reports("a b", true))
		begin := time.Now()
		for i := range 6 {
			c.send(t, reports("ollama", i%2 == 0))
		}
		for range 6 {
			wait.For(t, told, "a report")
		}
		// The first six are read at once, the other two a second apart.
		if took := time.Since(begin); took < 1500*time.Millisecond {
			t.Errorf("8 reports were taken within %v", took)
		}
		if n := strings.Count(log.String(), "ignoring invalid upstream reports of a connector"); n != 1 {
			t.Errorf("%d log lines about bad reports, want 1", n)
		}
	})
}

// A connector is asked again for models that it does not list, and for no others.
func TestRecheck(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		c := g.connect(t, "con_1", echo)
		s, to := g.mustSession(t, "con_1"), Target{Name: "m"}
		if g.Recheck("con_1", to) || g.Recheck("con_2", to) {
			t.Error("a model is missing without a report")
		}
		c.send(t, reports("ollama", true, "Other", "M:latest"))
		wait.Until(t, "the report", func() bool { return s.States()[0].Known })
		if n := testing.AllocsPerRun(100, func() { g.Recheck("con_1", to) }); n != 0 {
			t.Errorf("%v allocations for a model that is listed", n)
		}
		to.Model = "new"
		for range 100 {
			if !g.Recheck("con_1", to) {
				t.Fatal("the model is listed")
			}
		}
		if m := c.next(t); m != (link.Recheck{Upstream: "ollama"}) {
			t.Errorf("received %#v", m)
		}
		if g.Recheck("con_1", Target{Name: "new", Upstream: "none"}) {
			t.Error("a model of no upstream is missing")
		}
	})
}

// A dry run is answered, and leaves the connector's tunnel alone.
func TestDryRun(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{Authenticate: allow})
		g.connect(t, "con_1", echo).beats()
		before := g.mustSession(t, "con_1")
		counted := g.Counters()

		h := hello("con_1")
		h.DryRun, h.Instance = true, "another"
		c, err := g.dial(t, g.socket(t), h, echo)
		if err != nil {
			t.Fatal(err)
		}
		if c.welcome.Version != "test" || c.welcome.Session != "" {
			t.Errorf("welcome = %+v", c.welcome)
		}
		if code := c.ended(t); code != link.CloseNone {
			t.Errorf("closed with %v", code)
		}
		h.Secret = "wrong"
		var deny link.Deny
		if _, err := g.dial(t, g.socket(t), h, echo); !errors.As(err, &deny) || deny.Code != link.DenyCredentials {
			t.Errorf("wrong secret: %v", err)
		}
		if s := g.mustSession(t, "con_1"); s != before || len(g.Sessions()) != 1 ||
			g.Counters().Connected != counted.Connected {
			t.Errorf("the dry run took the tunnel's place")
		}
		if body, err := g.do(t, "con_1", "x"); err != nil || body != "x" {
			t.Errorf("request: %q, %v", body, err)
		}
	})
}
