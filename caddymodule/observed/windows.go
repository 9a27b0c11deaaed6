package observed

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
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

// observation is an observed window.
type observation struct {
	Window
	at     time.Time
	client string // who alone has seen it: it is in force for this client's requests; "": for all
}

// holds reports whether the observation is of the current tunnel and model server.
func (o observation) holds(since, now time.Time) bool {
	return o.Tokens > 0 && !o.at.Before(since) && now.Sub(o.at) < lifetime
}

// evidence is what counts of prompts have shown so far, in one tunnel and with one model server.
type evidence struct {
	since     time.Time // when that began
	begun     time.Time // the evidence: it ends as an observation does
	largest   int       // count
	low, size int       // the last count that was too low, and the estimate of its prompt
}

// Counted records a model server's count of a client's prompt that it has answered. A count above the observed window
// ends it. Counts that contradict each other show that the model server cuts prompts. They can also come of a prompt
// that is written for that, so a cut concerns its client alone until a second one has seen it.
func (t *Table) Counted(r tokens.Registration, connector, client string, count int, c tokens.Evidence) {
	t.update(name{r, connector}, func(o *route, at tunnel.DeploymentRoute, now time.Time) {
		e, since := &o.evidence, at.Since
		if !e.since.Equal(since) || now.Sub(e.begun) >= lifetime {
			*e = evidence{since: since, begun: now}
		}
		e.largest = max(e.largest, count)
		if count > o.window.Tokens || !o.window.holds(since, now) {
			o.window = observation{}
		}
		window := e.conclude(count, c)
		if window == 0 || at.Window > 0 || o.window.Tokens > 0 && o.window.Source != Cut {
			return // a server that lists its window refuses longer prompts
		}
		if o.window.Tokens > 0 && o.window.client != client {
			client = ""
		}
		o.window = observation{Window{window, Cut, true}, now, client}
	})
}

// conclude returns the window if a count and those before it show that the model server cuts prompts, else 0. It never
// does for a server that counts whole prompts: different prompts have different counts, and each count is at most the
// window.
func (e *evidence) conclude(count int, c tokens.Evidence) (window int) {
	switch {
	case c.Shrunk && 2*count >= e.largest: // else the server has answered much longer prompts whole
		window = (e.largest + windowUnit - 1) / windowUnit * windowUnit
	case c.TooLow > 0 && count == e.low && max(c.TooLow-e.size, e.size-c.TooLow) >= minDifference:
		window = 2 * (count - 2) // Ollama keeps the last half of the window and four tokens
	}
	if c.TooLow > 0 {
		e.low, e.size = count, c.TooLow
	}
	if window < max(e.largest, minCut) {
		return 0
	}
	return window
}

// Refused records the window that a refusal of a prompt names.
func (t *Table) Refused(d *store.Deployment, connector string, window int) {
	t.set(d, connector, Window{window, Refusal, false})
}

// Measured records a measured window. cuts reports whether the model server cuts longer prompts.
func (t *Table) Measured(d *store.Deployment, connector string, window int, cuts bool) {
	t.set(d, connector, Window{window, Measured, cuts})
}

// set records a window, which takes precedence over one of counts.
func (t *Table) set(d *store.Deployment, connector string, w Window) {
	t.update(nameOf(d, connector), func(o *route, _ tunnel.DeploymentRoute, now time.Time) {
		o.window = observation{Window: w, at: now}
	})
}

// update changes what is known of a route. at is its present state.
func (t *Table) update(n name, change func(o *route, at tunnel.DeploymentRoute, now time.Time)) {
	t.mu.Lock()
	o := t.find(n)
	if o == nil {
		t.mu.Unlock()
		return
	}
	at, _ := t.current(n)
	change(o, at, t.now())
	t.mu.Unlock()
	t.report(o)
}
