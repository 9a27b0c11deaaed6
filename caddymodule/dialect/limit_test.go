package dialect_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
)

func TestLimitOfOne(t *testing.T) {
	for name, want := range map[string]string{
		limits.RequestsPerMinute: "Limit 1 request per minute for", limits.SecondsPerDay: "Limit 1 busy second per day for",
		limits.Concurrency: "Limit 1 concurrent request for",
	} {
		if e := dialect.LimitReached(dialect.Limit{Name: name, Of: limits.OfKey, Max: 1}); !strings.Contains(e.Message, want) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
}
