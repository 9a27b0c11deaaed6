package dialect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
)

func TestLimitOfOne(t *testing.T) {
	for name, want := range map[string]string{
		limits.RequestsPerMinute: "Limit 1 request per minute for", limits.SecondsPerDay: "Limit 1 busy second per day for",
		limits.Concurrency: "Limit 1 concurrent request for",
	} {
		if e := dialect.LimitReached(dialect.Limit{Name: name, Of: limits.OfKey, Max: 1}); !strings.Contains(e.Message,
			want) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
}

// A client that retries after Retry-After is not too early.
func TestRetryAfterOfLimit(t *testing.T) {
	for wait, want := range map[time.Duration]int{300 * time.Millisecond: 1, time.Second: 1, 1500 * time.Millisecond: 2} {
		if e := dialect.LimitReached(dialect.Limit{
			Name: limits.RequestsPerMinute, Of: limits.OfKey, Max: 5,
			Wait: wait,
		}); e.RetryAfter != want {
			t.Errorf("%v to wait: Retry-After is %d, want %d", wait, e.RetryAfter, want)
		}
	}
}
