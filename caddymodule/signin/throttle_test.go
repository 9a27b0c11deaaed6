package signin

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

func TestThrottleDelays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		most time.Duration
		want []time.Duration // after each failure
	}{
		{"of an address", addressDelay, seconds(0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900)},
		{"of a user", userDelay, seconds(0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newThrottle[string](test.most, freeFailures)
				for i, want := range test.want {
					g.failed("x", time.Now())
					if got := g.wait("x", time.Now()); got != want {
						t.Errorf("after %d failures one waits for %v, not %v", i+1, got, want)
					}
					if got := g.wait("y", time.Now()); got != 0 {
						t.Errorf("another one waits for %v", got)
					}
					time.Sleep(want)
					if got := g.wait("x", time.Now()); got != 0 {
						t.Errorf("after %d failures and %v one still waits for %v", i+1, want, got)
					}
				}
				// However often: nothing overflows.
				for range 100 {
					g.failed("x", time.Now())
				}
				if got := g.wait("x", time.Now()); got != test.most {
					t.Errorf("after very many failures one waits for %v", got)
				}
				time.Sleep(forgetting - time.Nanosecond)
				g.failed("x", time.Now())
				if got := g.wait("x", time.Now()); got != test.most {
					t.Errorf("just before an hour was over all was forgotten: one waits for %v", got)
				}
				time.Sleep(forgetting)
				g.failed("x", time.Now())
				if got := g.wait("x", time.Now()); got != 0 {
					t.Errorf("after a quiet hour one waits for %v", got)
				}
			})
		})
	}
}

func seconds(all ...int) []time.Duration {
	var out []time.Duration
	for _, n := range all {
		out = append(out, time.Duration(n)*time.Second)
	}
	return out
}

func TestThrottleForgive(t *testing.T) {
	t.Parallel()
	g := newThrottle[string](addressDelay, freeFailures)
	now := time.Now()
	for range 7 {
		g.failed("x", now)
	}
	if n := g.forgive("x", 3); n != 3 {
		t.Errorf("took back %d of 3", n)
	}
	later := now.Add(time.Minute)
	g.failed("x", later)
	if got := g.wait("x", later); got != 0 {
		t.Errorf("the fifth failure makes one wait for %v", got)
	}
	if n := g.forgive("x", -1); n != 5 || g.entries.len() != 0 {
		t.Errorf("took back %d of 5; %d entries are left", n, g.entries.len())
	}
	if n := g.forgive("x", -1); n != 0 {
		t.Errorf("took back %d of none", n)
	}
}

// A flood of names and addresses takes no more memory than the tables may.
func TestGuardIsBounded(t *testing.T) {
	t.Parallel()
	g := newGuard()
	now := time.Now()
	for i := range 3 * maxEntries {
		client := fair.Parse(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff))
		g.failed(client, named(fmt.Sprint("name ", i)), now)
	}
	for name, n := range map[string]int{
		"addresses": g.addresses.entries.len(), "users": g.users.entries.len(), "pairs": g.pairs.entries.len(),
	} {
		if n < maxEntries || n > 2*maxEntries {
			t.Errorf("%d %s, not %d to %d", n, name, maxEntries, 2*maxEntries)
		}
	}
	// Those that go on failing are not the ones that are displaced.
	for range freeFailures + 1 {
		g.failed(fair.Parse("192.0.2.1"), named("ann"), now)
	}
	for i := range maxEntries - 1 {
		g.failed(fair.Parse(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)), named(fmt.Sprint(i)), now)
	}
	if g.address(fair.Parse("192.0.2.1"), now) == nil || g.user(fair.Parse("192.0.2.2"), named("ann"), func() bool { return false }, now) == nil {
		t.Error("a flood made the tables forget what was not the oldest")
	}
	// After a quiet hour one failure clears the tables.
	g.failed(fair.Parse("192.0.2.1"), named("ann"), now.Add(2*forgetting))
	if g.addresses.entries.len() != 1 || g.users.entries.len() != 1 || g.pairs.entries.len() != 1 {
		t.Errorf("after two quiet hours there are %d addresses, %d users", g.addresses.entries.len(), g.users.entries.len())
	}
}

// A site is what one customer has of IPv6; it fails often before it is throttled, and
// not for long.
func TestSites(t *testing.T) {
	t.Parallel()
	g := newGuard()
	now := time.Now()
	fail := func(format string, from, n int) {
		for i := range n {
			g.failed(fair.Parse(fmt.Sprintf(format, from+i)), named(fmt.Sprint(format, i)), now)
		}
	}
	known, stranger := func() bool { return true }, func() bool { return false }
	fail("2001:db8:0:%x::1", 1, siteFailures) // one /56
	here := fair.Parse("2001:db8:0:ff::1")
	if err := g.user(here, named("ann"), stranger, now); err != nil {
		t.Errorf("after %d failures: %v", siteFailures, err)
	}
	fail("2001:db8:0:%x::1", 0xf0, 10)
	if g.user(here, named("ann"), stranger, now) == nil || g.address(here, now) == nil {
		t.Error("a /56 fails as often as it likes")
	}
	if err := g.user(here, named("ann"), known, now); err != nil {
		t.Errorf("who is known there: %v", err)
	}
	if err := g.user(here, named("ann"), stranger, now.Add(userDelay)); err != nil {
		t.Errorf("after %v: %v", userDelay, err)
	}
	if g.user(fair.Parse("2001:db8:0:100::1"), named("ann"), stranger, now) == nil {
		t.Error("a /48 fails as often as it likes")
	}
	if err := g.user(fair.Parse("2001:db8:1::1"), named("ann"), stranger, now); err != nil {
		t.Errorf("another /48: %v", err)
	}
	fail("192.0.2.%d", 1, 100)
	if err := g.user(fair.Parse("192.0.2.200"), named("ann"), stranger, now); err != nil {
		t.Errorf("a neighbor in a /24: %v", err)
	}
	if _, ok := g.sites.entries.get(netip.MustParsePrefix("2001:db8::/48")); !ok || g.sites.entries.len() != 2 {
		t.Errorf("%d sites are counted", g.sites.entries.len())
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
