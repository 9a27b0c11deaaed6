// Package observed records what the answers of model servers have shown about deployments: their context windows,
// whether requests get no answer, which reasoning efforts work, and whether keys have used a model at once.
package observed

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// Source is how a context window is known.
type Source string

// The sources, in the order of precedence.
const (
	Option   Source = "option"   // the deployment's option context_window
	Listed   Source = "listed"   // the model server's list of models
	Refusal  Source = "refusal"  // the numbers of a refused prompt
	Measured Source = "measured" // a measurement
)

// Window is the context window of a deployment through one connector.
type Window struct {
	Tokens int // 0: not known
	Source Source
	Cuts   bool // the model server cuts longer prompts
	Strict bool // it refuses a prompt that exceeds the window together with the limit of its answer
}

// Table records the observations of one gateway. It is safe for concurrent use.
type Table struct {
	// Deployment returns the current version of a deployment.
	Deployment func(account, name string) (store.Deployment, bool)
	// Route returns the route of a deployment through a connector. ok is false if the connector is offline.
	Route func(connector string, target tunnel.Target) (r tunnel.DeploymentRoute, ok bool)
	// Changed is called when the answers of a route have shown another state: [health.Hanging], [health.Slow],
	// [health.CutsPrompts], or [health.Available] when all have ended.
	Changed func(account, deployment, connector string, found health.Finding)
	// Measure measures the context window of a deployment through a connector, and then calls [Table.Measured]. It
	// reports true if other requests have not let it: it may be tried again.
	Measure func(ctx context.Context, d store.Deployment, connector string) (again bool)

	now       func() time.Time
	running   sync.WaitGroup // measurements
	reporting sync.Mutex     // held during Changed, so that its calls are in order; locked before mu
	mu        sync.RWMutex
	routes    map[routeID]*route
	due       map[*route]bool // measurements
	efforts   map[effort]effect
}

// routeID identifies a route of one version of a deployment.
type routeID struct {
	tokens.Registration
	connector string
}

// route is what the requests through a route have shown. The table's lock guards it.
type route struct {
	id        routeID
	window    observation
	measured  time.Time // when the last measurement ended
	cut       time.Time // the last prompt that the model server has cut, unless it was measured since
	strict    time.Time // when it last refused a prompt with the limit of its answer
	measuring measuring
	waits     waits
	pace      pace
	sharing   sharing

	reported health.Finding // in the last call of Changed
}

// effort is a reasoning effort that clients of a deployment have sent. Some model servers reject it only with tools.
type effort struct {
	tokens.Registration
	name  string
	tools bool
}

// effect is what the answers to an effort have shown: that it works, or when the model has rejected it.
type effect struct {
	works  bool
	at     time.Time
	client string // the only one that has seen it; "": several have
}

// holds reports whether the effect is in force for a client; "": for any. A rejection is for an hour.
func (e effect) holds(client string, now time.Time) bool {
	return e.works || now.Sub(e.at) < time.Hour && (client == "" || e.client == "" || e.client == client)
}

// Efforts are the levels of messages requests: those that have worked, others that the model server gets, and those
// that it no longer gets because the model has rejected them.
type Efforts struct{ Work, Sent, Rejected []string }

// New returns an empty table. Its functions can be set before its first use.
func New(now func() time.Time) *Table {
	return &Table{
		Deployment: func(_, _ string) (d store.Deployment, ok bool) { return d, false },
		Route:      func(string, tunnel.Target) (r tunnel.DeploymentRoute, ok bool) { return r, false },
		Changed:    func(string, string, string, health.Finding) {},
		Measure:    func(context.Context, store.Deployment, string) bool { return false },
		now:        now, routes: make(map[routeID]*route), due: make(map[*route]bool), efforts: make(map[effort]effect),
	}
}

// OnChange forgets the observations of a deployment that has changed.
func (t *Table) OnChange(c store.Change) {
	if c.Kind != store.KindDeployment {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.routes, func(n routeID, _ *route) bool { return n.Account == c.Account && n.Deployment == c.ID })
	maps.DeleteFunc(t.efforts, func(e effort, _ effect) bool { return e.Account == c.Account && e.Deployment == c.ID })
}

// routeIDOf returns the name of a route.
func routeIDOf(d *store.Deployment, connector string) routeID {
	return routeID{tokens.NewRegistration(d.Account, d.Name, d.UpdatedAt), connector}
}

// current returns the present state of a route. ok is false if the deployment has changed, or the connector is offline.
func (t *Table) current(n routeID) (r tunnel.DeploymentRoute, ok bool) {
	d, _ := t.Deployment(n.Account, n.Deployment)
	if routeIDOf(&d, n.connector) != n || !slices.Contains(d.Connectors, n.connector) {
		return r, false
	}
	return t.Route(n.connector, tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model})
}

// record returns the record of a route. It creates one only for a current route, which [Table.OnChange] removes, and
// returns nil for another one. The caller holds the lock.
func (t *Table) record(n routeID) *route {
	o := t.routes[n]
	if o == nil {
		if _, ok := t.current(n); ok {
			o = &route{id: n, reported: health.Finding{State: health.Available}}
			t.routes[n] = o
		}
	}
	return o
}

// report calls Changed if the observed state of a route is another one than before. The caller holds no lock.
func (t *Table) report(o *route) {
	t.reporting.Lock()
	defer t.reporting.Unlock()
	t.mu.Lock()
	found := o.observed(time.Time{}, t.now())
	changed := t.routes[o.id] == o && found != o.reported
	o.reported = found
	t.mu.Unlock()
	if changed {
		t.Changed(o.id.Account, o.id.Deployment, o.id.connector, found)
	}
}

// observed returns the state that answers have shown since a time: Available if they have shown no problem. A model
// stays slow until fast answers show that it is not.
func (o *route) observed(since, now time.Time) health.Finding {
	switch {
	case o.waits.hanging && o.waits.answered.After(since):
		return health.Finding{State: health.Hanging}
	case !o.pace.slow.Since.IsZero():
		return o.pace.slow
	case o.window.holds(since, now):
		if o.window.Cuts || holds(o.cut, since, now) {
			return health.Finding{State: health.CutsPrompts, Window: o.window.Tokens}
		}
	case holds(o.cut, since, now):
		return health.Finding{State: health.CutsPrompts}
	}
	return health.Finding{State: health.Available}
}

// Window returns the context window of a deployment through a connector with this route.
func (t *Table) Window(d *store.Deployment, connector string, r tunnel.DeploymentRoute) (w Window) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, now := t.routes[routeIDOf(d, connector)], t.now()
	switch {
	case d.Options.ContextWindow > 0:
		w = Window{Tokens: d.Options.ContextWindow, Source: Option}
	case r.Window > 0:
		w = Window{Tokens: r.Window, Source: Listed}
	case o != nil && o.window.holds(r.Since, now):
		w = o.window.Window
	}
	w.Strict = r.Strict || o != nil && holds(o.strict, r.Since, now)
	return w
}

// State returns the state of a route. It differs from r.State if answers have shown a problem.
func (t *Table) State(d *store.Deployment, connector string, r tunnel.DeploymentRoute) health.Finding {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o := t.routes[routeIDOf(d, connector)]
	if o == nil || r.State != health.Available {
		return health.Finding{State: r.State}
	}
	return o.observed(r.Since, t.now())
}

// Status returns the state of a deployment and, if no connector has loaded its model, the status of that, as far as
// model servers report it.
func (t *Table) Status(d *store.Deployment) (state health.State, status string) {
	known, states := false, make([]health.State, len(d.Connectors))
	for i, connector := range d.Connectors {
		r, online := t.current(routeIDOf(d, connector))
		if states[i] = health.Offline; online {
			states[i] = t.State(d, connector, r).State
		}
		if online && r.State.Usable() && (!known || r.Status < status) {
			status, known = r.Status, true // none comes before "loading"
		}
	}
	state, _ = health.ModelState(states)
	return state, status
}

// Effort records that an answer to a client's effort has shown reasoning, or that the model has rejected the effort. An
// effort that has worked stays so. A request can be written to be rejected, so a rejection concerns its client alone
// until a second one has seen it. Clients invent names of efforts: only [compat.Efforts] are kept.
func (t *Table) Effort(d *store.Deployment, client, name string, tools, works bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	current, _ := t.Deployment(d.Account, d.Name) // OnChange removes its efforts
	if e := (effort{routeIDOf(d, "").Registration, name, tools}); e.Registration == routeIDOf(&current, "").Registration &&
		slices.Contains(compat.Efforts, name) {
		old := t.efforts[e]
		if old.client != client && old.holds("", t.now()) {
			client = ""
		}
		if !old.works {
			t.efforts[e] = effect{works, t.now(), client}
		}
	}
}

// EffortWorks reports whether an effort has worked, and not been rejected, if that is known to a client; "": to any.
func (t *Table) EffortWorks(d *store.Deployment, client, name string, tools bool) (works, known bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.efforts[effort{routeIDOf(d, "").Registration, name, tools}]
	return e.works, e.holds(client, t.now())
}

// Efforts returns what is known to a client of the efforts of a deployment, with tools or without; "": to any.
func (t *Table) Efforts(d *store.Deployment, client string) (e Efforts) {
	for _, level := range compat.Efforts[2:] {
		works, known := t.EffortWorks(d, client, level, true)
		alone, too := t.EffortWorks(d, client, level, false)
		switch works, known = works || alone, known || too; {
		case works:
			e.Work = append(e.Work, level)
		case known:
			e.Rejected = append(e.Rejected, level)
		case d.Options.Reasoning || jsonscan.Member([]byte(d.Options.Efforts), level) != nil:
			e.Sent = append(e.Sent, level)
		}
	}
	return e
}
