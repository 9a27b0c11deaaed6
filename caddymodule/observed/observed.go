// Package observed records what the answers of model servers have shown about deployments: their context windows, and
// whether requests get no answer.
package observed

import (
	"sync"
	"time"

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
	Measured Source = "measured" // a measurement that somebody asked for
	Cut      Source = "cut"      // the token counts of prompts that the model server has cut
)

// Window is the context window of a deployment through one connector.
type Window struct {
	Tokens int // 0: not known
	Source Source
}

// Table records the observations of one gateway. It is safe for concurrent use.
type Table struct {
	// Route returns the route of a deployment through a connector. ok is false if either is missing or offline.
	Route func(account, deployment, connector string) (r tunnel.DeploymentRoute, ok bool)
	// Changed is called when the answers of a route have shown another state: [health.Hanging],
	// [health.CutsPrompts] with the context window, or [health.Available] when that ends. It must
	// return soon, and must not use the table.
	Changed func(account, deployment, connector string, state health.State, window int)

	now     func() time.Time
	mu      sync.RWMutex // guards waits
	waits   map[name]*waits
	windows windows
}

// New returns an empty table. Its functions can be set before its first use.
func New(now func() time.Time) *Table {
	return &Table{
		Route:   func(_, _, _ string) (r tunnel.DeploymentRoute, ok bool) { return r, false },
		Changed: func(string, string, string, health.State, int) {},
		now:     now, waits: make(map[name]*waits), windows: windows{routes: make(map[name]*observations)},
	}
}

// OnChange forgets the observations of a deployment that has changed.
func (t *Table) OnChange(c store.Change) {
	if c.Kind == store.KindDeployment {
		t.forget(func(n name) bool { return n.account == c.Account && n.deployment == c.ID })
		t.windows.remove(c.Account, c.ID)
	}
}

// Window returns the context window of a deployment through a connector with this route.
func (t *Table) Window(d store.Deployment, connector string, route tunnel.DeploymentRoute) Window {
	switch {
	case d.Options.ContextWindow > 0:
		return Window{d.Options.ContextWindow, Option}
	case route.Window > 0:
		return Window{route.Window, Listed}
	}
	return t.observed(d, connector, route).Window
}

// State returns the state of a route. It differs from route.State if answers have shown a problem.
func (t *Table) State(d store.Deployment, connector string, route tunnel.DeploymentRoute) health.State {
	switch {
	case t.hangs(name{d.Account, d.Name, connector}, route):
		return health.Hanging
	case route.State == health.Available && t.observed(d, connector, route).cuts:
		return health.CutsPrompts
	}
	return route.State
}
