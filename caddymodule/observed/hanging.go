package observed

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	hangAfter      = 5 * time.Minute  // without a first token
	hangAfterWhole = 10 * time.Minute // without an answer that is not a stream
	checkEvery     = 30 * time.Second // while requests wait
)

// waits are the requests of a route that wait for their first token, or for an answer that is not a stream. The route
// hangs if requests have waited for a first token for hangAfter, or for a whole answer for hangAfterWhole, and no
// answer has flowed meanwhile. It must have answered before, through the same tunnel. The next answer ends the state.
type waits struct {
	running  int       // all requests
	streams  pending   // wait for their first token
	wholes   pending   // wait for a whole answer
	flowing  int       // answers that have begun and not ended
	answered time.Time // the last beginning of an answer
	checking bool      // a check is due
	hanging  bool
}

// pending are requests whose answers have not begun.
type pending struct {
	waiting int
	since   time.Time // since when requests wait and no answer flows
}

// Attempt is a request at a model server, until it ends. The zero value has ended.
type Attempt struct {
	table      *Table
	route      *route
	pending    *pending
	begun      bool // its answer has begun
	ended      bool
	runningSum int // the running requests at its first token plus those at its end
}

// Begin begins an attempt to serve a request of a key and a deployment through a connector. It allocates only for a new
// route, and to schedule a check.
func (t *Table) Begin(d *store.Deployment, connector, key string, stream bool) Attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.record(routeIDOf(d, connector))
	if o == nil {
		return Attempt{}
	}
	t.interrupt(o.id)
	w, p := &o.waits, &o.waits.wholes
	if stream {
		p = &o.waits.streams
	}
	o.noteKey(key, t.now())
	w.running++
	if p.waiting == 0 {
		p.since = t.now()
	}
	p.waiting++
	if !w.checking {
		w.checking = true
		time.AfterFunc(checkEvery, func() { t.check(o) })
	}
	return Attempt{table: t, route: o, pending: p}
}

// First records that the answer has begun: a stream with its first token. Later calls have no effect.
func (a *Attempt) First() {
	if a.route == nil || a.begun || a.ended {
		return
	}
	a.begun = true
	t, w := a.table, &a.route.waits
	t.mu.Lock()
	hung := w.hanging
	a.runningSum = w.running
	a.pending.waiting--
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
	defer t.measureIdle(a.route.id.connector)
	a.runningSum += w.running
	w.running--
	if !a.begun {
		a.pending.waiting--
		return
	}
	w.flowing--
	w.streams.since, w.wholes.since = t.now(), t.now() // the next request may have waited for this one
}

// check determines whether a route hangs. It repeats itself while requests wait.
func (t *Table) check(o *route) {
	r, online := t.current(o.id)
	t.mu.Lock()
	w, now := &o.waits, t.now()
	late := func(p pending, after time.Duration) bool { return p.waiting > 0 && now.Sub(p.since) >= after }
	if w.checking = t.routes[o.id] == o && w.streams.waiting+w.wholes.waiting > 0; w.checking {
		w.hanging = w.hanging || online && r.State == health.Available && w.flowing == 0 &&
			w.answered.After(r.Since) && (late(w.streams, hangAfter) || late(w.wholes, hangAfterWhole))
		time.AfterFunc(checkEvery, func() { t.check(o) })
	}
	t.mu.Unlock()
	t.report(o)
}
