package observed

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// rig is a table with the deployment m on con_1.
type rig struct {
	*Table
	t       *testing.T
	mu      sync.Mutex // guards the rest
	d       store.Deployment
	at      tunnel.DeploymentRoute
	online  bool
	changes []string
}

var m = store.Deployment{Account: "default", Name: "m", Connectors: []string{"con_1"}}

// play runs a test in virtual time.
func play(t *testing.T, f func(*rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{Table: New(time.Now), t: t, d: m, online: true}
		r.at = tunnel.DeploymentRoute{State: health.Available, Since: time.Now()}
		time.Sleep(time.Second)
		r.Deployment = func(_, name string) (store.Deployment, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.d, name == r.d.Name
		}
		r.Route = func(string, tunnel.Target) (tunnel.DeploymentRoute, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.at, r.online
		}
		r.Changed = func(account, deployment, connector string, found health.Finding) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changes = append(r.changes, fmt.Sprint(account, " ", deployment, " ", connector, " ", found.State))
		}
		f(r)
	})
}

func (r *rig) begin() *Attempt {
	a := r.Begin(&m, "con_1", "key_1", true)
	return &a
}

// set changes the route.
func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// serve is a request with an answer.
func (r *rig) serve() {
	a := r.begin()
	time.Sleep(time.Second)
	a.First()
	time.Sleep(time.Second)
	a.End()
}

// expect checks the state, and the changes since the last call.
func (r *rig) expect(what string, want health.State, changes ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.State(&m, "con_1", r.at).State; got != want {
		r.t.Errorf("%s: %s, want %s", what, got, want)
	}
	got := r.changes
	r.changes = nil
	for i, c := range changes {
		changes[i] = "default m con_1 " + c
	}
	if fmt.Sprint(got) != fmt.Sprint(changes) {
		r.t.Errorf("%s: changes %v, want %v", what, got, changes)
	}
}

// A model server hangs when requests have had no first token for five minutes, although one got its before. It is
// reported once, and its next first token, too.
func TestHanging(t *testing.T) {
	play(t, func(r *rig) {
		r.serve()
		time.Sleep(time.Hour)
		r.expect("without requests", health.Available)
		first := r.begin()
		time.Sleep(3 * time.Minute)
		second := r.begin()
		first.End() // its client leaves
		time.Sleep(2*time.Minute - time.Second)
		r.expect("a moment before", health.Available)
		time.Sleep(time.Second)
		r.expect("after five minutes", health.Hanging, "hanging")
		time.Sleep(time.Hour)
		r.expect("an hour later", health.Hanging)
		second.End()
		r.expect("its client leaves", health.Hanging)
		third := r.begin()
		time.Sleep(time.Minute)
		third.First()
		third.First()
		r.expect("a first token", health.Available, "available")
		third.End()
		third.End()
		last := r.begin()
		time.Sleep(hangAfter + checkEvery)
		r.expect("again", health.Hanging, "hanging")
		last.End()
	})
}

// Nothing hangs that may only be slow.
func TestNotHanging(t *testing.T) {
	for name, f := range map[string]func(*rig){
		"a model that has not answered yet": func(r *rig) { r.begin() },
		"a long answer that the others wait for": func(r *rig) {
			a := r.begin()
			a.First()
			r.begin()
			time.AfterFunc(22*time.Minute, a.End)
		},
		"one request after another": func(r *rig) {
			r.serve()
			for range 20 {
				a := r.begin()
				time.Sleep(time.Minute)
				a.End()
			}
		},
		"a new tunnel": func(r *rig) {
			r.serve()
			r.set(func() { r.at.Since = time.Now() })
			r.begin()
		},
		"a server that is down": func(r *rig) {
			r.serve()
			r.set(func() { r.at.State = health.ServerDown })
			r.begin()
		},
		"a deployment that was changed": func(r *rig) {
			r.serve()
			r.begin()
			r.set(func() { r.d.UpdatedAt = time.Now() })
			r.OnChange(store.Change{Kind: store.KindDeployment, Account: m.Account, ID: m.Name})
			r.begin() // it began with the deployment from before
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig) {
				f(r)
				time.Sleep(20 * time.Minute)
				r.expect(name, r.at.State)
			})
		})
	}
}

// An answer that is not a stream shows nothing before its end, so it has more time.
func TestHangingWholeAnswers(t *testing.T) {
	play(t, func(r *rig) {
		whole := func() *Attempt {
			a := r.Begin(&m, "con_1", "key_1", false)
			return &a
		}
		before := whole()
		time.Sleep(time.Minute)
		before.First()
		before.End()
		for range 3 { // they come one after another
			next := whole()
			last := whole()
			time.Sleep(hangAfterWhole - time.Second)
			r.expect("slow answers", health.Available)
			next.First()
			next.End()
			last.End()
		}
		time.Sleep(time.Hour)
		first := whole()
		time.Sleep(hangAfterWhole - time.Minute)
		second := r.begin()
		time.Sleep(time.Minute - time.Second)
		r.expect("a moment before", health.Available)
		time.Sleep(checkEvery)
		r.expect("after ten minutes", health.Hanging, "hanging")
		second.End()
		first.First()
		r.expect("an answer", health.Available, "available")
		first.End()
		third := whole()
		time.Sleep(hangAfter)
		r.expect("in the time of a stream", health.Available)
		third.End()
	})
}

// What waits behind a long answer has five minutes from its end on.
func TestHangingAfterAnAnswer(t *testing.T) {
	play(t, func(r *rig) {
		a := r.begin()
		a.First()
		r.begin()
		time.Sleep(time.Hour)
		a.End()
		time.Sleep(hangAfter - time.Second)
		r.expect("before", health.Available)
		time.Sleep(checkEvery)
		r.expect("after", health.Hanging, "hanging")
	})
}

// The table has entries for routes of deployments that exist, and removes them with their deployment. A request that
// begins when its deployment was removed, changed, or has lost the connector adds none. No timer is left.
func TestRoutesAreBounded(t *testing.T) {
	play(t, func(r *rig) {
		r.serve()
		if len(r.routes) != 1 {
			t.Errorf("%d routes with requests", len(r.routes))
		}
		r.OnChange(store.Change{Kind: store.KindDeployment, Account: m.Account, ID: m.Name, Removed: true})
		if len(r.routes) != 0 {
			t.Errorf("%d routes after a removal", len(r.routes))
		}
		for what, change := range map[string]func(){
			"offline":              func() { r.online = false },
			"another version":      func() { r.d.UpdatedAt = time.Now() },
			"without a connector":  func() { r.d.Connectors = nil },
			"a removed deployment": func() { r.d = store.Deployment{} },
		} {
			r.set(func() { r.d, r.online = m, true })
			r.set(change)
			a := r.begin()
			r.Refused(&m, "con_1", 1024)
			a.First()
			a.End()
			if len(r.routes) != 0 {
				t.Errorf("%s: %d routes", what, len(r.routes))
			}
		}
	})
}

// Reports are in order, also if a first token comes while the state is reported. They can use the table.
func TestReportsAreInOrder(t *testing.T) {
	play(t, func(r *rig) {
		var states []health.State
		waits := r.begin()
		r.Changed = func(_, _, _ string, found health.Finding) {
			r.State(&m, "con_1", r.at)
			if found.State == health.Hanging {
				go waits.First()
			}
			states = append(states, found.State)
		}
		r.serve()
		time.Sleep(2 * hangAfter)
		synctest.Wait()
		if fmt.Sprint(states) != "[hanging available]" {
			t.Errorf("reported %v", states)
		}
		waits.End()
	})
}

// Attempts and look-ups allocate nothing.
func TestAttemptsAreCheap(t *testing.T) {
	b := newBench()
	use := func() {
		a := b.Begin(&b.d, "con_1", "key_1", true)
		a.First()
		a.End()
	}
	use()
	if n := testing.AllocsPerRun(100, use); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
