package observed

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
)

// together serves n streams at the same time. Each has 100 tokens.
func (r *rig) together(n int, speed float64) {
	attempts := make([]*Attempt, n)
	for i := range attempts {
		attempts[i] = r.begin()
	}
	for _, a := range attempts {
		a.First()
	}
	time.Sleep(time.Duration(100 / speed * float64(time.Second)))
	for _, a := range attempts {
		defer a.Decoded(speed, 100)
		defer a.End()
	}
}

// stream serves streams one after another, one a minute.
func (r *rig) stream(n int, speed float64) {
	for range n {
		r.together(1, speed)
		time.Sleep(time.Minute)
	}
}

// A route is slow when the median of its last ten answers is under a third of the usual speed, until it is above that.
// It is reported once, with the time of the first slow answer.
func TestSlow(t *testing.T) {
	play(t, func(r *rig) {
		r.stream(20, 41)
		since := time.Now().Add(25 * time.Second)
		r.stream(5, 4)
		r.expect("after five slow answers", health.Available)
		r.stream(1, 4)
		r.expect("after six", health.Slow, "slow")
		found := r.State(&m, "con_1", r.at)
		if found.Speed != 4 || found.Usual != 41 || !found.Since.Equal(since) {
			t.Errorf("found %+v, not since %v", found, since)
		}
		r.stream(100, 4)
		r.expect("after a hundred", health.Slow)
		r.stream(20, 13)
		r.expect("under a third", health.Slow)
		r.stream(5, 14)
		r.expect("five above a third", health.Slow)
		r.stream(1, 14)
		r.expect("six above a third", health.Available, "available")
		r.stream(5, 4)
		r.expect("five slow answers", health.Available)
		r.stream(1, 4)
		r.expect("slow again", health.Slow, "slow")
		r.set(func() { r.at.State = health.ServerDown })
		r.expect("a server that is down", health.ServerDown)
		r.set(func() { r.at.State = health.Available })
		stuck := r.begin()
		time.Sleep(hangAfter + checkEvery)
		r.expect("a server that hangs", health.Hanging, "hanging")
		stuck.First()
		r.expect("a slow answer", health.Slow, "slow")
		stuck.End()
		r.OnChange(store.Change{Kind: store.KindDeployment, Account: m.Account, ID: m.Name})
		r.stream(20, 4)
		r.expect("another model", health.Available)
	})
}

// Nothing is slow that cannot be compared, or is slower for another reason.
func TestNotSlow(t *testing.T) {
	for name, f := range map[string]func(*rig){
		"a model with few answers":     func(r *rig) { r.stream(9, 41); r.stream(1, 4) },
		"a model that is a bit slower": func(r *rig) { r.stream(20, 41); r.stream(20, 14) },
		"every second answer": func(r *rig) {
			r.stream(20, 41)
			for range 20 {
				r.stream(1, 4)
				r.stream(1, 41)
			}
		},
		"many requests at the same time": func(r *rig) {
			r.stream(20, 41)
			for range 20 {
				r.together(9, 4)
			}
		},
		"requests for whole answers at the same time": func(r *rig) {
			r.stream(20, 41)
			for range 8 {
				whole := r.Begin(&m, "con_1", "key_1", false)
				whole.First()
				defer whole.End()
			}
			r.stream(20, 4)
		},
		"short answers": func(r *rig) {
			r.stream(20, 41)
			for range 20 {
				a := r.begin()
				a.First()
				a.End()
				a.Decoded(1, 20)
			}
		},
		"whole answers": func(r *rig) {
			r.stream(20, 41)
			for range 20 {
				a := r.Begin(&m, "con_1", "key_1", false)
				a.First()
				a.End()
				a.Decoded(0, 100)
			}
		},
		"answers that came at once before": func(r *rig) {
			for range 20 {
				a := r.begin()
				a.First()
				a.End()
				a.Decoded(10_000, 100)
			}
			r.stream(20, 41)
		},
		"what was usual more than a week ago": func(r *rig) {
			r.stream(20, 41)
			time.Sleep(7 * 24 * time.Hour)
			r.stream(20, 4)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig) {
				f(r)
				r.expect(name, health.Available)
			})
		})
	}
}

// Answers are compared with those at about the same number of running requests.
func TestSlowAtTheSameLoad(t *testing.T) {
	play(t, func(r *rig) {
		r.stream(20, 41)
		for range 4 {
			r.together(6, 9)
		}
		r.expect("six at the same time", health.Available)
		r.together(6, 2.9)
		r.expect("at a third", health.Slow, "slow")
		r.stream(6, 41)
		r.expect("one after another", health.Available, "available")
	})
}

// What is slow for a week is usual.
func TestSlowForAWeek(t *testing.T) {
	play(t, func(r *rig) {
		r.stream(20, 41)
		r.stream(6, 4)
		r.expect("at first", health.Slow, "slow")
		time.Sleep(6 * 24 * time.Hour)
		r.stream(5, 4)
		r.expect("almost a week", health.Slow)
		time.Sleep(24 * time.Hour)
		r.stream(1, 4)
		r.expect("a week", health.Available, "available")
		r.stream(20, 4)
		r.expect("then", health.Available)
		r.stream(6, 1)
		r.expect("even slower", health.Slow, "slow")
	})
}

// The speeds of a route are bounded, whatever clients send.
func TestSpeedsAreBounded(t *testing.T) {
	play(t, func(r *rig) {
		for range 30 {
			for n := range 40 {
				r.together(n+1, 100)
			}
			time.Sleep(24 * time.Hour)
		}
		usual := r.routes[routeIDOf(&m, "con_1")].pace.usual
		if len(usual) > 7*7 {
			t.Errorf("%d levels", len(usual))
		}
		for l, speeds := range usual {
			if len(speeds) > 16 {
				t.Errorf("%d speeds at %+v", len(speeds), l)
			}
		}
	})
}
