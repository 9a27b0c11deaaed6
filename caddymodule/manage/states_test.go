package manage_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/cputime"
)

// A deployment is available only if its model server is reachable and lists the
// model.
func TestDeploymentStates(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"ollama": nil})
	rack := g.connector("default", "rack", map[string]http.Handler{"ollama": nil, "vllm": nil})
	g.deployment("m", home, "", "")
	if _, err := g.store.SetDeployment(t.Context(), store.Deployment{
		Account: "default", Name: "both", Connectors: []string{home.info.Connector, rack.info.Connector}, Upstream: "ollama",
		Model: "m",
	}); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, m, both health.State, bothText string, warnings ...string) {
		t.Helper()
		list := want[[]manage.Deployment](g, 200, "GET", "/deployments", "")
		if list[1].State != m || list[0].State != both || list[0].StateText() != bothText {
			t.Errorf("%s: m is %s, both %s (%s)", what, list[1].State, list[0].State, list[0].StateText())
		}
		for _, w := range warnings {
			if !strings.Contains(list[1].Warning, w) {
				t.Errorf("%s: warning %q lacks %q", what, list[1].Warning, w)
			}
		}
		if len(warnings) == 0 && list[1].Warning != "" {
			t.Errorf("%s: warning %q", what, list[1].Warning)
		}
		available := 0
		for _, s := range []health.State{m, both} {
			if s.Usable() {
				available++
			}
		}
		if st := want[manage.Status](g, 200, "GET", "/status", "").Deployments; st.Available != available || st.Total != 2 ||
			st.States[both] == 0 {
			t.Errorf("%s: status counts %+v", what, st)
		}
	}
	expect("nothing is reported yet", health.Available, health.Available, "available")
	g.tunnels.report(home.info.Connector, "ollama", lists("m:latest", "other"))
	g.tunnels.report(rack.info.Connector, "ollama", lists("m"))
	expect("all is well", health.Available, health.Available, "available")
	g.tunnels.report(home.info.Connector, "ollama", health.Reported(false, nil, false))
	expect("one server is down", health.ServerDown, health.Degraded, "degraded (1 of 2)",
		`connector "home" cannot reach its model server "ollama"`, "start the server there")
	g.tunnels.report(home.info.Connector, "ollama", lists("renamed"))
	expect("the model was renamed", health.ModelMissing, health.Degraded, "degraded (1 of 2)",
		`does not list the model "m"; load it there, or correct the model's name on the server`)
	g.tunnels.report(rack.info.Connector, "ollama", health.Reported(false, nil, false))
	expect("both fail", health.ModelMissing, health.ModelMissing, "model missing", "does not list")
	g.tunnels.report(home.info.Connector, "ollama", health.Reported(true, nil, false))
	expect("a server that lists nothing", health.Available, health.Degraded, "degraded (1 of 2)")

	cons := want[[]manage.Connector](g, 200, "GET", "/connectors", "")
	if len(cons) != 2 || len(cons[1].Upstreams) != 2 || cons[1].Upstreams[0].State != manage.Down ||
		cons[1].Upstreams[1].State != manage.Unknown {
		t.Errorf("connectors = %+v", cons)
	}
	g.tunnels.report(rack.info.Connector, "vllm", lists("a", "b"))
	cons = want[[]manage.Connector](g, 200, "GET", "/connectors", "")
	if text := fmt.Sprint(cons[1].Upstreams); text != "[ollama (down) vllm (2 models)]" {
		t.Errorf("upstreams read %s", text)
	}

	for _, test := range []struct{ home, rack, want string }{
		{"unloaded", "loading", "available, loading"},
		{"unloaded", "unloaded", "available, not loaded"},
		{"unloaded", "", "available"},
	} {
		for c, status := range map[string]string{home.info.Connector: test.home, rack.info.Connector: test.rack} {
			server := lists("m")
			server.Status = map[string]string{"m": status}
			g.tunnels.report(c, "ollama", server)
		}
		expect("statuses", health.Available, health.Available, test.want)
	}

	g.tunnels.connect()
	g.store.TouchConnector(rack.info.Connector, nil)
	expect("offline", health.Offline, health.Offline, "offline")
	list := want[[]manage.Deployment](g, 200, "GET", "/deployments", "")
	if at := list[0].OfflineSince; at == nil || time.Since(*at) > time.Minute || list[1].OfflineSince != nil {
		t.Errorf("offline since %v and %v", list[0].OfflineSince, list[1].OfflineSince)
	}
	if cons := want[[]manage.Connector](g, 200, "GET", "/connectors", ""); cons[1].LastSeenAt == nil ||
		cons[0].LastSeenAt != nil {
		t.Errorf("last seen %v and %v", cons[1].LastSeenAt, cons[0].LastSeenAt)
	}
}

// A deployment whose model server hangs says so, until that answers.
func TestHangingState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		g.deployment("m", g.connector("default", "home", map[string]http.Handler{"ollama": nil}), "", "")
		d, _ := g.store.Deployment("default", "m")
		expect := func(state health.State, warning string) {
			t.Helper()
			got := want[[]manage.Deployment](g, 200, "GET", "/deployments", "")[0]
			if got.State != state || !strings.Contains(got.Warning, warning) || (got.Warning == "") != (warning == "") {
				t.Errorf("%s, %q, want %s, %q", got.State, got.Warning, state, warning)
			}
		}
		time.Sleep(time.Second)
		answered := g.observed.Begin(&d, d.Connectors[0], "key_1", true)
		answered.First()
		answered.End()
		waits := g.observed.Begin(&d, d.Connectors[0], "key_1", true)
		defer waits.End()
		expect(health.Available, "")
		time.Sleep(5*time.Minute + time.Second)
		expect(health.Hanging, `for 5 minutes, requests have had no first token from model server "ollama" `+
			`of connector "home"`)
		waits.First()
		expect(health.Available, "")
	})
}

// The state of a slow model has its speed, and it can be used.
func TestSlowState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		g.deployment("m", g.connector("default", "home", map[string]http.Handler{"ollama": nil}), "", "")
		d, _ := g.store.Deployment("default", "m")
		for i := range 26 {
			a := g.observed.Begin(&d, d.Connectors[0], "key_1", true)
			a.First()
			a.End()
			a.Decoded(map[bool]float64{true: 41, false: 4}[i < 20], 100)
		}
		got := want[[]manage.Deployment](g, 200, "GET", "/deployments", "")[0]
		if got.State != health.Slow || got.Available != 1 || got.Warning != `connector "home": 4.0 tokens/s instead of 41.0 `+
			"since 1 Jan, 00:00 UTC: the model is probably not running on the GPU; restart the model server" {
			t.Errorf("%s, %d available, %q", got.State, got.Available, got.Warning)
		}
	})
}

// Many models and many deployments take linear time.
func TestStatesAreCheapWithManyModels(t *testing.T) {
	list := func(n int) func() time.Duration {
		g := newGateway(t)
		home := g.connector("default", "home", map[string]http.Handler{"ollama": nil})
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("%s-%04d", strings.Repeat("M", 100), i))
		}
		g.tunnels.report(home.info.Connector, "ollama", lists(ids...))
		for i := range n / 4 {
			g.deployment(fmt.Sprintf("d%d", i), home, "", ids[i])
		}
		return func() time.Duration {
			begin := cputime.Used()
			must(t, errOf(g.service.Deployments(asOperator(t.Context()))))
			return cputime.Used() - begin
		}
	}
	few, many := list(200), list(800)
	small, large := few(), many()
	// The minimum of several runs, as garbage collections delay some of them.
	for range 40 {
		if large <= 8*small {
			return
		}
		small, large = min(small, few()), min(large, many())
	}
	t.Errorf("four times as many cost %v instead of %v", large, small)
}
