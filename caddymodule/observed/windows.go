package observed

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// lifetime is how long an observation holds. The model server may load the model with another window.
const lifetime = 24 * time.Hour

// observation is an observed window.
type observation struct {
	Window
	at time.Time
}

// holds reports whether the observation is of the current tunnel and model server.
func (o observation) holds(since, now time.Time) bool {
	return o.Tokens > 0 && holds(o.at, since, now)
}

// holds reports whether something seen at a time is of the current tunnel and model server.
func holds(at, since, now time.Time) bool { return !at.Before(since) && now.Sub(at) < lifetime }

// Counted records a model server's count of a prompt that it has answered, and the doubt about it. A count above the
// observed window ends it. If the server may have cut the prompt and the window is not known, it is measured later.
func (t *Table) Counted(r tokens.Registration, connector string, count int, doubt tokens.Doubt) {
	t.update(routeID{r, connector}, func(o *route, at tunnel.DeploymentRoute, now time.Time) {
		if count > o.window.Tokens || !o.window.holds(at.Since, now) {
			o.window = observation{}
		}
		found := holds(o.measured, at.Since, now) // which decides
		if doubt == tokens.Cut && (!found || o.window.Cuts) {
			o.cut = now
		}
		d, _ := t.Deployment(r.Account, r.Deployment)
		if doubt != tokens.None && !found && o.window.Tokens == 0 && at.Window == 0 && d.Options.ContextWindow == 0 {
			t.measureLater(o, now)
		}
	})
}

// RefusedAnswer records that a model server has refused a prompt because of the limit of its answer.
func (t *Table) RefusedAnswer(d *store.Deployment, connector string) {
	t.update(routeIDOf(d, connector), func(o *route, _ tunnel.DeploymentRoute, now time.Time) { o.strict = now })
}

// Refused records the window that a refusal of a prompt names.
func (t *Table) Refused(d *store.Deployment, connector string, window int) {
	t.update(routeIDOf(d, connector), func(o *route, _ tunnel.DeploymentRoute, now time.Time) {
		o.window = observation{Window{Tokens: window, Source: Refusal}, now}
	})
}

// Measured records a measured window, 0 if the model server accepts the longest prompt. cuts reports whether the server
// cuts longer prompts.
func (t *Table) Measured(d *store.Deployment, connector string, window int, cuts bool) {
	t.update(routeIDOf(d, connector), func(o *route, _ tunnel.DeploymentRoute, now time.Time) {
		o.window, o.measured, o.cut = observation{Window{Tokens: window, Source: Measured, Cuts: cuts}, now}, now, time.Time{}
	})
}

// update changes what is known of a route. at is its present state.
func (t *Table) update(n routeID, change func(o *route, at tunnel.DeploymentRoute, now time.Time)) {
	t.mu.Lock()
	o := t.record(n)
	if o == nil {
		t.mu.Unlock()
		return
	}
	at, _ := t.current(n)
	change(o, at, t.now())
	t.mu.Unlock()
	t.report(o)
}
