package upstream

import (
	"testing"

	"github.com/postern-dev/postern/connector/config"
)

// An upstream that stays the same keeps its health.
func TestSetReuse(t *testing.T) {
	open := func(old Set, box string) Set {
		set, err := Open(&config.Config{Upstreams: map[string]config.Upstream{
			"box":   {BaseURL: box},
			"other": {BaseURL: "http://other/v1"},
		}}, old, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	first := open(nil, "http://a/v1")
	second := open(first, "http://b/v1")
	if first["other"] != second["other"] || first["box"] == second["box"] {
		t.Error("not exactly the upstream that is the same was reused")
	}
}
