package fair

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestDelays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		most time.Duration
		want []time.Duration // after each failure
	}{
		{"of an address", 15 * time.Minute, seconds(0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900)},
		{"of a user", 30 * time.Second, seconds(0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := NewAttempts[string](Delays{Free: 5, First: time.Second, Max: test.most, Forget: time.Hour, Size: 100})
				for i, want := range test.want {
					a.Fail("x", time.Now())
					if got := a.Wait("x", time.Now()); got != want {
						t.Errorf("after %d failures one waits for %v, not %v", i+1, got, want)
					}
					if got := a.Wait("y", time.Now()); got != 0 {
						t.Errorf("another one waits for %v", got)
					}
					time.Sleep(want)
					if got := a.Wait("x", time.Now()); got != 0 {
						t.Errorf("after %d failures and %v one still waits for %v", i+1, want, got)
					}
				}
				// Many failures cause no overflow.
				for range 100 {
					a.Fail("x", time.Now())
				}
				if got := a.Wait("x", time.Now()); got != test.most {
					t.Errorf("after very many failures one waits for %v", got)
				}
				time.Sleep(time.Hour - time.Nanosecond)
				a.Fail("x", time.Now())
				if got := a.Wait("x", time.Now()); got != test.most {
					t.Errorf("just before an hour was over all was forgotten: one waits for %v", got)
				}
				time.Sleep(time.Hour)
				a.Fail("x", time.Now())
				if got := a.Wait("x", time.Now()); got != 0 {
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

func TestForgive(t *testing.T) {
	t.Parallel()
	a := NewAttempts[string](Delays{Free: 5, First: time.Second, Max: 15 * time.Minute, Forget: time.Hour, Size: 100})
	now := time.Now()
	for range 7 {
		a.Fail("x", now)
	}
	if n := a.Forgive("x", 3); n != 3 {
		t.Errorf("took back %d of 3", n)
	}
	later := now.Add(time.Minute)
	a.Fail("x", later)
	if got := a.Wait("x", later); got != 0 {
		t.Errorf("the fifth failure makes one wait for %v", got)
	}
	if n := a.Forgive("x", -1); n != 5 || a.entries.Len() != 0 {
		t.Errorf("took back %d of 5; %d entries are left", n, a.entries.Len())
	}
	if n := a.Forgive("x", -1); n != 0 {
		t.Errorf("took back %d of none", n)
	}
}

// Edges that share a limit have their part of the free failures, at least one, and longer delays.
func TestEdgesShareDelays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for edges, want := range map[int][]time.Duration{
		1: seconds(0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 30),
		2: seconds(0, 0, 2, 4, 8, 16, 32, 60, 60),
		3: seconds(0, 3, 6, 12),
		8: seconds(8, 16),
	} {
		a := NewAttempts[string](Delays{
			Free: 5, First: time.Second, Max: 30 * time.Second, Forget: time.Hour, Size: 100,
			Edges: func() int { return edges },
		})
		for i, want := range want {
			a.Fail("x", now)
			if got := a.Wait("x", now); got != want {
				t.Errorf("%d edges: after %d failures one waits for %v, not %v", edges, i+1, got, want)
			}
		}
	}
}

// Forgiving some failures does not change the time of the last one.
func TestForgivenIsNoNewer(t *testing.T) {
	t.Parallel()
	a := NewAttempts[string](Delays{Free: 5, First: time.Second, Max: time.Minute, Forget: time.Hour, Size: 2})
	now := time.Now()
	for _, key := range []string{"x", "x", "y"} {
		a.Fail(key, now)
	}
	a.Forgive("x", 1)
	a.Fail("z", now)
	if a.get("x", now).count > 0 || a.get("y", now).count == 0 {
		t.Error("it displaced one that had failed later")
	}
}

// A flood displaces the oldest failures, and the number of entries stays bounded. Forgotten failures
// have no entries.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	const size = 100
	a := NewAttempts[int](Delays{Free: 1, First: time.Second, Max: time.Minute, Forget: time.Hour, Size: size})
	now := time.Now()
	a.Fail(-1, now)
	for i := range size {
		a.Fail(-2, now)
		a.Fail(i, now)
	}
	if n := a.entries.Len(); n != size {
		t.Errorf("%d entries, not %d", n, size)
	}
	if a.get(-1, now).count > 0 || a.get(-2, now).count == 0 || a.Wait(-2, now) != time.Minute {
		t.Error("a flood displaced entries that were not the oldest")
	}
	now = now.Add(time.Hour)
	if a.get(-2, now).count > 0 || a.Wait(-2, now) != 0 {
		t.Error("failures are not forgotten")
	}
	a.Fail(0, now)
	if n := a.entries.Len(); n != 1 {
		t.Errorf("%d entries after a quiet hour", n)
	}
}
