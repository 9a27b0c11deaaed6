package observed

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const (
	// hangAfter is how long requests must wait without a first token until their model server hangs.
	hangAfter = 5 * time.Minute
	// checkAgain is how soon a model server is checked again that did not hang when it was due.
	checkAgain = 30 * time.Second
)

// deployment names a deployment of an account.
type deployment struct{ account, name string }

// waits are the requests that model servers have, by deployment and connector.
type waits struct {
	mu     sync.RWMutex
	routes map[deployment]map[string]*route
}

// route counts the requests that wait for their first token, through one connector. A model server hangs if at each
// moment of hangAfter at least one request has waited, none has got its first token or the rest of its answer, and one
// got its first token before, through the same tunnel.
//
// A first token shows that the requests before it wait for another reason, such as a long prompt. They are forgotten.
type route struct {
	table *Table
	deployment
	connector string

	mu       sync.Mutex
	turn     uint64    // number of first tokens
	waiting  int       // requests that began after the last first token
	flowing  int       // answers that have begun and not ended
	since    time.Time // while waiting > 0: from then on, no answer has flowed
	answered time.Time // the last first token
	checking bool      // a check is due
	reported bool      // as hanging
}

// Attempt is a request that a model server has, until it ends. The zero value has ended.
type Attempt struct {
	route *route
	turn  uint64
	begun bool // it has its first token
}

// Begin begins an attempt to serve a request of a deployment through a connector. It allocates nothing while such
// requests have been running before.
func (t *Table) Begin(account, name, connector string) Attempt {
	r := t.waits.find(deployment{account, name}, connector)
	if r == nil {
		r = t.waits.add(&route{table: t, deployment: deployment{account, name}, connector: connector})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == 0 {
		r.since = t.now()
		r.checkAfter(hangAfter)
	}
	r.waiting++
	return Attempt{route: r, turn: r.turn}
}

// First records that the answer has its first token. Later calls have no effect.
func (a *Attempt) First() {
	r := a.route
	if r == nil || a.begun {
		return
	}
	a.begun = true
	r.mu.Lock()
	reported := r.reported
	r.turn++
	r.waiting, r.answered, r.reported = 0, r.table.now(), false
	r.flowing++
	r.mu.Unlock()
	if reported {
		r.table.Changed(r.account, r.name, r.connector, health.Available, 0)
	}
}

// End ends the attempt. A second call has no effect.
func (a *Attempt) End() {
	r := a.route
	if r == nil {
		return
	}
	a.route = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case a.begun:
		r.flowing--
		r.since = r.table.now() // the next request may have waited for this one
	case a.turn == r.turn:
		r.waiting--
	}
}

// hangs reports whether the model server of a deployment hangs behind a connector with this route.
func (w *waits) hangs(d store.Deployment, connector string, at tunnel.DeploymentRoute) bool {
	r := w.find(deployment{d.Account, d.Name}, connector)
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hangs(at)
}

// hangs implements [waits.hangs]. The caller holds the lock.
func (r *route) hangs(at tunnel.DeploymentRoute) bool {
	return at.State == health.Available && r.waiting > 0 && r.flowing == 0 && r.answered.After(at.Since) &&
		r.table.now().Sub(r.since) >= hangAfter
}

// checkAfter schedules a check, unless one is due. The caller holds the lock.
func (r *route) checkAfter(d time.Duration) {
	if !r.checking {
		r.checking = true
		time.AfterFunc(d, r.check)
	}
}

// check reports a model server that hangs, once until its next first token.
func (r *route) check() {
	at, ok := r.table.Route(r.account, r.name, r.connector)
	if !ok { // the tunnel has ended, or the request began when the deployment was removed
		r.table.waits.remove(r.deployment, r)
	}
	if r.table.waits.find(r.deployment, r.connector) != r {
		return
	}
	r.mu.Lock()
	r.checking = false
	hangs := r.hangs(at) && !r.reported
	r.reported = r.reported || hangs
	if r.waiting > 0 && !r.reported {
		rest := hangAfter - r.table.now().Sub(r.since)
		if rest <= 0 {
			rest = checkAgain
		}
		r.checkAfter(rest)
	}
	r.mu.Unlock()
	if hangs {
		r.table.Changed(r.account, r.name, r.connector, health.Hanging, 0)
	}
}

func (w *waits) find(d deployment, connector string) *route {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.routes[d][connector]
}

// add adds a route, unless there is one already, and returns the one that is there.
func (w *waits) add(r *route) *route {
	w.mu.Lock()
	defer w.mu.Unlock()
	routes := w.routes[r.deployment]
	if routes == nil {
		routes = make(map[string]*route)
		w.routes[r.deployment] = routes
	}
	if routes[r.connector] == nil {
		routes[r.connector] = r
	}
	return routes[r.connector]
}

// remove removes the route r of a deployment, or all if r is nil. Running requests keep theirs.
func (w *waits) remove(d deployment, r *route) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r != nil && w.routes[d][r.connector] == r {
		delete(w.routes[d], r.connector)
	}
	if r == nil || len(w.routes[d]) == 0 {
		delete(w.routes, d)
	}
}
