package observed

import (
	"maps"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const (
	hangAfter  = 5 * time.Minute  // without a first token
	checkEvery = 30 * time.Second // while requests wait
)

// name names a route.
type name struct{ account, deployment, connector string }

// waits counts the requests of a route that wait for their first token. The route hangs if at each moment of hangAfter
// at least one has waited and no answer has flowed, and if there was a first token before, through the same tunnel.
//
// A first token shows that the requests before it wait for another reason, such as a long prompt. They no longer count.
type waits struct {
	table *Table
	name

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
	waits *waits
	turn  uint64
	begun bool // it has its first token
}

// Begin begins an attempt to serve a request of a deployment through a connector. It allocates only for the first one.
func (t *Table) Begin(account, deployment, connector string) Attempt {
	n := name{account, deployment, connector}
	w := t.find(n)
	if w == nil {
		t.mu.Lock()
		if w = t.waits[n]; w == nil {
			w = &waits{table: t, name: n}
			t.waits[n] = w
		}
		t.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == 0 {
		w.since = t.now()
	}
	w.waiting++
	w.checkLater()
	return Attempt{waits: w, turn: w.turn}
}

// First records that the answer has its first token. Later calls have no effect.
func (a *Attempt) First() {
	w := a.waits
	if w == nil || a.begun {
		return
	}
	a.begun = true
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn++
	w.flowing++
	w.waiting, w.answered = 0, w.table.now()
	if w.reported {
		w.reported = false
		w.table.Changed(w.account, w.deployment, w.connector, health.Available, 0)
	}
}

// End ends the attempt. A second call has no effect.
func (a *Attempt) End() {
	w := a.waits
	if w == nil {
		return
	}
	a.waits = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case a.begun:
		w.flowing--
		w.since = w.table.now() // the next request may have waited for this one
	case a.turn == w.turn:
		w.waiting--
	}
}

// hangs reports whether the model server hangs behind this route.
func (t *Table) hangs(n name, route tunnel.DeploymentRoute) bool {
	w := t.find(n)
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hangs(route)
}

// hangs implements [Table.hangs]. The caller holds the lock.
func (w *waits) hangs(route tunnel.DeploymentRoute) bool {
	return route.State == health.Available && w.waiting > 0 && w.flowing == 0 && w.answered.After(route.Since) &&
		w.table.now().Sub(w.since) >= hangAfter
}

// checkLater schedules a check, unless one is due or none is necessary. The caller holds the lock.
func (w *waits) checkLater() {
	if !w.checking && w.waiting > 0 && !w.reported {
		w.checking = true
		time.AfterFunc(checkEvery, w.check)
	}
}

// check reports a model server that hangs, once until its next first token.
func (w *waits) check() {
	route, ok := w.table.Route(w.account, w.deployment, w.connector)
	if !ok { // the tunnel has ended, or the request began when the deployment was removed
		w.table.forget(func(n name) bool { return n == w.name })
	}
	known := w.table.find(w.name) == w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checking = false
	switch {
	case !known, w.reported:
	case w.hangs(route):
		w.reported = true
		w.table.Changed(w.account, w.deployment, w.connector, health.Hanging, 0)
	default:
		w.checkLater()
	}
}

// find returns the waits of a route, nil if it had no request.
func (t *Table) find(n name) *waits {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.waits[n]
}

// forget removes routes. Their running requests keep theirs.
func (t *Table) forget(which func(name) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.waits, func(n name, _ *waits) bool { return which(n) })
}
