package cli

import (
	"math"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	now := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	env := environment{now: func() time.Time { return now }}
	for ahead, want := range map[time.Duration]string{
		-time.Second: "now", 0: "now", time.Second: "in 1s", 14*time.Minute + 59*time.Second: "in 15m",
		15 * time.Minute: "in 15m",
		61 * time.Minute: "in 2h", 72 * time.Hour: "in 3d", math.MaxInt64: "in 106752d",
	} {
		if got := env.until(now.Add(ahead)); got != want {
			t.Errorf("%v: %q, want %q", ahead, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	env := environment{now: func() time.Time { return now }}
	for past, want := range map[time.Duration]string{
		-time.Second: "0s ago", 0: "0s ago", 59 * time.Second: "59s ago", time.Minute: "1m ago",
		59 * time.Minute: "59m ago", time.Hour: "1h ago", 47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago",
	} {
		at := now.Add(-past)
		if got := env.ago(&at); got != want {
			t.Errorf("%v: %q, want %q", past, got, want)
		}
	}
	if got := env.ago(nil); got != "never" {
		t.Errorf("nil: %q", got)
	}
}
