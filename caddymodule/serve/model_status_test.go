package serve

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// The list of models says which ones no connector has loaded.
func TestStatusOfModels(t *testing.T) {
	g := newWindowGateway(t)
	d := g.deployment()
	other := "con_2"
	d.Connectors = append(d.Connectors, other)
	g.online(other, 0)
	g.backend.Observed.Deployment = func(string, string) (store.Deployment, bool) { return d, true }
	route := func(connector, status string, state health.State) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.routes[connector] = tunnel.DeploymentRoute{State: state, Status: status}
	}
	for _, test := range []struct{ one, two, want string }{
		{"", "", ""},
		{"unloaded", "unloaded", "unloaded"},
		{"loading", "unloaded", "loading"},
		{"unloaded", "loading", "loading"},
		{"unloaded", "", ""},
		{"", "loading", ""},
	} {
		route(d.Connectors[0], test.one, health.Available)
		route(other, test.two, health.Available)
		if _, got := g.backend.Observed.Status(&d); got != test.want {
			t.Errorf("%q and %q: %q", test.one, test.two, got)
		}
	}
	route(other, "", health.ServerDown)
	if _, got := g.backend.Observed.Status(&d); got != "" {
		t.Errorf("the only one that works has loaded it: %q", got)
	}
	route(d.Connectors[0], "unloaded", health.Available)
	for _, path := range []string{"/v1/models", "/v1/models/m"} {
		if list := string(g.get(path)); !strings.Contains(list, `,"status":{"value":"unloaded"}}`) ||
			!strings.Contains(list, `"state":"available"`) {
			t.Errorf("%s: %s", path, list)
		}
	}
	route(d.Connectors[0], "", health.ServerDown)
	if list := string(g.get("/v1/models")); !strings.Contains(list, `"state":"model_server_down"`) {
		t.Error(list)
	}
}
