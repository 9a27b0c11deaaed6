package manage_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// A judge that is another model of a server that loads one at a time makes it swap.
func TestSwapWarning(t *testing.T) {
	g := newGateway(t)
	home := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"home"}`)["id"].(string)
	rack := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"rack"}`)["id"].(string)
	several := func(connector string, oneModel bool) tunnel.Info {
		return tunnel.Info{
			Connector: connector, Upstreams: []string{"swap", "vllm"},
			States: []tunnel.UpstreamState{{Name: "swap", OneModel: oneModel}, {Name: "vllm"}},
		}
	}
	g.tunnels.connect(several(home, true), several(rack, false))
	for name, body := range map[string]string{
		"same": `{"connector":"home","upstream":"swap","model":"judge"}`, "judge": `{"connector":"home","upstream":"swap"}`,
		"vllm": `{"connector":"home","upstream":"vllm"}`, "rack": `{"connector":"rack","upstream":"swap"}`,
		"both": `{"connectors":["rack","home"],"upstream":"swap"}`, "self": `{"connector":"home","upstream":"swap"}`,
	} {
		want[manage.Deployment](g, 200, "PUT", "/deployments/"+name, body)
	}
	for _, tt := range []struct {
		name, judge string
		warned      bool
	}{
		{"self", "judge", true},
		{"both", "judge", true},
		{"self", "vllm", false},
		{"self", "rack", false},
		{"rack", "judge", false},
		{"same", "judge", false},
		{"judge", "self", false}, // itself, and not the deployment of this name
	} {
		set := want[manage.Deployment](g, 200, "PUT", "/deployments/"+tt.name,
			`{"options":{"safeguards":"`+tt.judge+`"}}`)
		const text = `"judge" is another model of the model server "swap" of connector "home", which loads one at a time`
		if tt.warned != strings.Contains(set.Warning, text) || !tt.warned && set.Warning != "" {
			t.Errorf("%s judged by %s: %q", tt.name, tt.judge, set.Warning)
		}
	}
}

// The model that a server has loaded which loads one at a time, and its swaps, are known of such servers alone.
func TestLoaded(t *testing.T) {
	g := newGateway(t)
	home := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"home"}`)["id"].(string)
	g.tunnels.connect(tunnel.Info{
		Connector: home, Upstreams: []string{"swap", "vllm"},
		States: []tunnel.UpstreamState{{Name: "swap", OneModel: true}, {Name: "vllm"}},
	})
	state := manage.Loaded{Model: "default's model", Swaps: 3, SwapMillis: 4500}
	upstreams := want[[]manage.Connector](g, 200, "GET", "/connectors", "")[0].Upstreams
	if l := upstreams[0].Loaded; l == nil || *l != state || upstreams[1].Loaded != nil {
		t.Errorf("upstreams %+v", upstreams)
	}
	const text = "swap (one at a time, default's model is loaded, 3 swaps took 5s)"
	if s := upstreams[0].String(); s != text {
		t.Errorf("the text is %q", s)
	}
	if s := (manage.Loaded{Swaps: 1, SwapMillis: 61000}).Took(); s != "1 swap took 1m1s" {
		t.Errorf("one swap: %q", s)
	}
	for upstream, want1 := range map[string]*manage.Loaded{"swap": &state, "vllm": nil} {
		d := want[manage.Deployment](g, 200, "PUT", "/deployments/"+upstream,
			`{"connector":"home","upstream":"`+upstream+`"}`)
		if l := d.Through[0].Loaded; (l == nil) != (want1 == nil) || l != nil && *l != *want1 {
			t.Errorf("through %s: %+v", upstream, l)
		}
	}
}

// A deployment without max_concurrency that two keys use at once gets a suggestion, which members do not see.
func TestSuggestion(t *testing.T) {
	g := newGateway(t)
	home := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"home"}`)["id"].(string)
	g.tunnels.connect(tunnel.Info{Connector: home, Upstreams: []string{"ollama"}})
	use := func(body string) string {
		set := want[manage.Deployment](g, 200, "PUT", "/deployments/m", body)
		for _, key := range []string{"key_1", "key_2"} {
			a := g.observed.Begin(&set.Deployment, home, key, true)
			defer a.End()
		}
		if set.Suggestion != "" {
			t.Errorf("before its use: %q", set.Suggestion)
		}
		return want[[]manage.Deployment](g, 200, "GET", "/deployments", "")[0].Suggestion
	}
	if s := use(`{"connector":"home"}`); !strings.Contains(s,
		"set `max_concurrency` to the number of slots of the model server") {
		t.Errorf("without a limit: %q", s)
	}
	g.user(store.DefaultAccount, "ann")
	mia := g.inRole("mia", store.RoleMember)
	if s := wantAs[[]manage.Deployment](g, mia, 200, "GET", "/deployments", "")[0].Suggestion; s != "" {
		t.Errorf("a member sees %q", s)
	}
	if s := use(`{"max_concurrency":2}`); s != "" {
		t.Errorf("with a limit: %q", s)
	}
}
