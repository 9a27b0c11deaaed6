package observed

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	hangAfter  = 5 * time.Minute  // without a first token
	checkEvery = 30 * time.Second // while requests wait
)

// waits are the requests of a route that wait for their first token. The route hangs if at each moment of hangAfter at
// least one has waited and no answer has flowed, and if there was a first token before, through the same tunnel. That
// ends with the next first token.
type waits struct {
	running  int       // all requests, also those that get no stream
	waiting  int       // requests without a first token
	flowing  int       // answers that have begun and not ended
	since    time.Time // while requests wait and no answer flows: since when
	answered time.Time // the last first token
	checking bool      // a check is due
	hanging  bool
}

// Attempt is a request that a model server has, until it ends. The zero value has ended.
type Attempt struct {
	table   *Table
	route   *route
	stream  bool
	begun   bool // it has its first token
	ended   bool
	running int // the requests at its first token, and those at its end
}

// Begin begins an attempt to serve a request of a deployment through a connector. It allocates only for the first one.
func (t *Table) Begin(d *store.Deployment, connector string, stream bool) Attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.find(nameOf(d, connector))
	if o == nil {
		return Attempt{}
	}
	t.interrupt(o.name)
	w := &o.waits
	if w.running++; !stream {
		return Attempt{table: t, route: o}
	}
	if w.waiting == 0 {
		w.since = t.now()
	}
	w.waiting++
	if !w.checking {
		w.checking = true
		time.AfterFunc(checkEvery, func() { t.check(o) })
	}
	return Attempt{table: t, route: o, stream: true}
}

// First records that the answer has its first token. Later calls have no effect.
func (a *Attempt) First() {
	if !a.stream || a.begun || a.ended {
		return
	}
	a.begun = true
	t, w := a.table, &a.route.waits
	t.mu.Lock()
	hung := w.hanging
	a.running = w.running
	w.waiting--
	w.flowing++
	w.answered, w.hanging = t.now(), false
	t.mu.Unlock()
	if hung {
		t.report(a.route)
	}
}

// End ends the attempt. A second call has no effect.
func (a *Attempt) End() {
	if a.route == nil || a.ended {
		return
	}
	a.ended = true
	t, w := a.table, &a.route.waits
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.measureIdle()
	a.running += w.running
	w.running--
	switch {
	case a.begun:
		w.flowing--
		w.since = t.now() // the next request may have waited for this one
	case a.stream:
		w.waiting--
	}
}

// check finds out whether a route hangs, again and again while requests wait.
func (t *Table) check(o *route) {
	r, online := t.current(o.name)
	t.mu.Lock()
	w := &o.waits
	if w.checking = t.routes[o.name] == o && w.waiting > 0; w.checking {
		w.hanging = w.hanging || online && r.State == health.Available && w.flowing == 0 &&
			w.answered.After(r.Since) && t.now().Sub(w.since) >= hangAfter
		time.AfterFunc(checkEvery, func() { t.check(o) })
	}
	t.mu.Unlock()
	t.report(o)
}
