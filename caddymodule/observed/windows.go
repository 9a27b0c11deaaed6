package observed

import (
	"maps"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const (
	// lifetime is how long an observation holds. The model server may load the model with another window.
	lifetime = time.Hour
	// minCut is the smallest window of a server that cuts prompts. Below it, equal counts say little.
	minCut = 512
	// minDifference is by how many tokens the estimates of two prompts with equal counts must differ at least.
	minDifference = 16
	// windowUnit is what windows usually are a multiple of.
	windowUnit = 1024
)

// windows are the observed context windows.
type windows struct {
	mu     sync.RWMutex
	routes map[name]*observations
}

// observations are what the answers through one route have shown of its window.
type observations struct {
	updated time.Time // UpdatedAt of the deployment
	told    observation
	cut     observation
	// reported is the window over which the server cuts prompts, as Changed knows it; 0: it does not.
	reported int
	evidence
}

// observation is an observed window.
type observation struct {
	Window
	cuts bool // the model server cuts longer prompts
	at   time.Time
}

// holds reports whether the observation is of the current tunnel and model server.
func (o observation) holds(since, now time.Time) bool {
	return o.Tokens > 0 && !o.at.Before(since) && now.Sub(o.at) < lifetime
}

// evidence is what counts of prompts have shown so far, in one tunnel and with one model server.
type evidence struct {
	since     time.Time // when that began
	largest   int       // count
	largestAt time.Time
	low, size int // the last count that was too low, and the estimate of its prompt
}

// Counted records a model server's count of a prompt that it has answered. since is that of the route. A count above
// the observed window ends it. Counts that contradict each other show that the model server cuts prompts.
func (t *Table) Counted(d store.Deployment, connector string, since time.Time, count int, e tokens.Evidence) {
	t.update(d, connector, func(o *observations, now time.Time) {
		if !o.since.Equal(since) {
			o.evidence = evidence{since: since}
		}
		if count > o.largest || now.Sub(o.largestAt) >= lifetime {
			o.largest, o.largestAt = count, now
		}
		for _, known := range [...]*observation{&o.told, &o.cut} {
			if known.Tokens > 0 && (count > known.Tokens || !known.holds(since, now)) {
				*known = observation{}
				o.low, o.size = 0, 0
			}
		}
		if window := o.conclude(count, e); window > 0 {
			o.cut = observation{Window{window, Cut}, true, now}
		}
	})
}

// conclude returns the window if a count and those before it show that the model server cuts prompts, else 0. It never
// does for a server that counts whole prompts: different prompts have different counts, and each count is at most the
// window.
func (e *evidence) conclude(count int, c tokens.Evidence) (window int) {
	switch {
	case c.TooLow > 0 && count == e.low && max(c.TooLow-e.size, e.size-c.TooLow) >= minDifference, c.Same:
		window = 2 * (count - 2) // Ollama keeps the last half of the window and four tokens
	case 2*c.Before >= e.largest: // else the server has answered much longer prompts whole
		window = (e.largest + windowUnit - 1) / windowUnit * windowUnit
	}
	if c.TooLow > 0 && (count != e.low || window > 0) {
		e.low, e.size = count, c.TooLow
	}
	if window < max(e.largest, minCut) {
		return 0
	}
	return window
}

// Refused records the window that a refusal of a prompt names.
func (t *Table) Refused(d store.Deployment, connector string, window int) {
	t.tell(d, connector, observation{Window: Window{window, Refusal}})
}

// Measured records a measured window. cuts reports whether the model server cuts longer prompts.
func (t *Table) Measured(d store.Deployment, connector string, window int, cuts bool) {
	t.tell(d, connector, observation{Window: Window{window, Measured}, cuts: cuts})
}

// tell records a window that takes precedence over one of counts.
func (t *Table) tell(d store.Deployment, connector string, told observation) {
	t.update(d, connector, func(o *observations, now time.Time) {
		told.at = now
		o.told, o.cut = told, observation{}
	})
}

// update changes the observations of a route.
func (t *Table) update(d store.Deployment, connector string, change func(o *observations, now time.Time)) {
	n := name{d.Account, d.Name, connector}
	t.windows.mu.Lock()
	o := t.windows.routes[n]
	if o == nil || o.updated.Before(d.UpdatedAt) {
		o = &observations{updated: d.UpdatedAt}
		t.windows.routes[n] = o
	} else if o.updated.After(d.UpdatedAt) { // a request that began before the deployment changed
		t.windows.mu.Unlock()
		return
	}
	now, cut := t.now(), 0
	change(o, now)
	if known := o.current(time.Time{}, now); known.cuts {
		cut = known.Tokens
	}
	changed := cut != o.reported
	o.reported = cut
	t.windows.mu.Unlock()
	switch {
	case changed && cut > 0:
		t.Changed(d.Account, d.Name, connector, health.CutsPrompts, cut)
	case changed:
		t.Changed(d.Account, d.Name, connector, health.Available, 0)
	}
}

// current returns the observation in force, if there is one.
func (o *observations) current(since, now time.Time) observation {
	for _, known := range [...]observation{o.told, o.cut} {
		if known.holds(since, now) {
			return known
		}
	}
	return observation{}
}

// observed returns the observation in force of a route.
func (t *Table) observed(d store.Deployment, connector string, route tunnel.DeploymentRoute) observation {
	t.windows.mu.RLock()
	defer t.windows.mu.RUnlock()
	o := t.windows.routes[name{d.Account, d.Name, connector}]
	if o == nil || !o.updated.Equal(d.UpdatedAt) {
		return observation{}
	}
	return o.current(route.Since, t.now())
}

// remove forgets the windows of a deployment.
func (w *windows) remove(account, deployment string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.routes, func(n name, _ *observations) bool {
		return n.account == account && n.deployment == deployment
	})
}
