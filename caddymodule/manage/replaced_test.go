package manage_test

import (
	"maps"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// A change of a deployment is one call, and its answer has what it replaced.
func TestReplacedValues(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	g.connector("default", "gpu-box", nil)
	g.connector("default", "mac-mini", nil)
	for _, tt := range []struct {
		body     string
		replaced map[string]string
	}{
		{`{"connector":"gpu-box","also_as":["coder","gpt"],"max_concurrency":3}`, nil},
		{`{"add_connector":"mac-mini"}`, nil},
		{`{"also_as":["gpt","coder","more"]}`, nil},
		{
			`{"connector":"mac-mini","also_as":["gpt"],"max_concurrency":0,"model":"x"}`,
			map[string]string{"connectors": "gpu-box", "also_as": "coder, more", "max_concurrency": "3"},
		},
		{`{"connector":"mac-mini","model":"y"}`, map[string]string{"model": "x"}},
		{`{"connector":"mac-mini","model":"y"}`, nil},
	} {
		d := wantAs[manage.Deployment](g, anna, 200, "PUT", "/deployments/qwen3", tt.body)
		if !maps.Equal(d.Replaced, tt.replaced) {
			t.Errorf("%s replaced %v, want %v", tt.body, d.Replaced, tt.replaced)
		}
	}
}
