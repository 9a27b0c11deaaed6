package signin

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// A flood of names and addresses displaces only the oldest failures.
func TestGuardInFlood(t *testing.T) {
	t.Parallel()
	g := newGuard(nil)
	now := time.Now()
	for i := range 3 * maxEntries {
		client := fair.Parse(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff))
		g.failed(client, nameKey(fmt.Sprint("name ", i)), now)
	}
	// Clients that continue to fail are not displaced.
	for range freeFailures + 1 {
		g.failed(fair.Parse("192.0.2.1"), nameKey("ann"), now)
	}
	for i := range maxEntries - 1 {
		g.failed(fair.Parse(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)), nameKey(fmt.Sprint(i)), now)
	}
	if g.checkAddress(fair.Parse("192.0.2.1"), now) == nil ||
		g.checkUser(fair.Parse("192.0.2.2"), nameKey("ann"), func() bool { return false }, now) == nil {
		t.Error("a flood displaced entries that were not the oldest")
	}
}

func TestThrottledErrorSaysWhen(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{
		time.Millisecond:        "too many failed attempts: try again in a second",
		time.Second:             "too many failed attempts: try again in a second",
		1001 * time.Millisecond: "too many failed attempts: try again in 2 seconds",
		119 * time.Second:       "too many failed attempts: try again in 119 seconds",
		2 * time.Minute:         "too many failed attempts: try again in 2 minutes",
		841 * time.Second:       "too many failed attempts: try again in 15 minutes",
	} {
		if got := (&ThrottledError{RetryAfter: wait}).Error(); got != want {
			t.Errorf("%v: %q, not %q", wait, got, want)
		}
	}
}
