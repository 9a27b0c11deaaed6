package serve

import (
	"cmp"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// minBytesPerToken is the size of a token that text hardly goes below. Smaller bodies fit into a window, and are not
// counted.
const minBytesPerToken = 2

// clientOf returns who has sent a request: the owner of its key, or the key.
func clientOf(ex *Exchange) string { return cmp.Or(ex.Key.Owner(), ex.Key.ID()) }

// window returns the context window for a client of a deployment through a connector. ok is false if the connector is
// offline, or its model server down.
func (s *Server) window(ex *Exchange, d *store.Deployment, connector string) (w observed.Window, ok bool) {
	target := tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model}
	route, ok := s.Route(connector, target)
	if !ok || !route.State.Usable() {
		return w, false
	}
	return ex.backend.Observed.Window(d, connector, clientOf(ex), route), true
}

// windows returns the smallest and the largest known context window of a deployment through the connectors that can
// serve it, and whether there are unknown ones.
func (s *Server) windows(ex *Exchange, d *store.Deployment) (smallest int, largest observed.Window, unknown bool) {
	for _, connector := range d.Connectors {
		w, ok := s.window(ex, d, connector)
		switch {
		case !ok:
			continue
		case w.Tokens == 0:
			unknown = true
		case smallest == 0 || w.Tokens < smallest:
			smallest = w.Tokens
		}
		if w.Tokens > largest.Tokens {
			largest = w
		}
	}
	return smallest, largest, unknown
}

// fit counts the prompt if it may be longer than a context window of its deployment. It refuses a prompt that is
// surely longer than all of them. Router omits the connectors whose window is too small.
func (c *clientRequest) fit() *dialect.Error {
	c.prompt = 0
	if !c.exchange.Operation.IsChat() || c.deployment.Options.Overflow == compat.OverflowPass {
		return nil
	}
	smallest, largest, unknown := c.windows(c.exchange, &c.deployment)
	if smallest == 0 || c.size+c.kept < minBytesPerToken*int64(smallest) {
		return nil
	}
	leave, err := c.enterCounting(c.ctx, turnWait)
	if err != nil {
		return nil // the model server counts it
	}
	defer leave()
	r := registration(c.deployment)
	n, sure := c.completions.calibration.CountSurely(c.ctx, r, c.exchange.Key.ID(), c.call.Prompt())
	if c.ctx.Err() != nil || n == 0 {
		return nil
	}
	c.estimated.Do(func() { c.tokens = n })
	if !unknown && sure > largest.Tokens {
		return dialect.PromptTooLong(n, largest.Tokens, largest.Cuts)
	}
	c.prompt = sure
	return nil
}

// fitting returns the connectors of the deployment whose context window may be large enough for the prompt. They are
// all if each is too small: windows have changed since the prompt was counted.
func (t *turn) fitting() []string {
	d := t.deployment
	if t.prompt == 0 {
		return d.Connectors
	}
	var fitting []string
	for _, connector := range d.Connectors {
		if w, ok := t.window(t.exchange, d, connector); !ok || w.Tokens == 0 || w.Tokens >= t.prompt {
			fitting = append(fitting, connector)
		}
	}
	if len(fitting) == 0 {
		return d.Connectors
	}
	return fitting
}

// overflowed records the numbers of a model server's refusal of a prompt that is too long.
func (c *clientRequest) overflowed(derr *dialect.Error) {
	if derr == nil || derr.Kind != dialect.KindContextLength {
		return
	}
	if derr.Window > 0 {
		c.Observed.Refused(&c.deployment, c.exchange.Connector, int(derr.Window))
	}
	c.overflow = derr.PromptTokens
}

// learn enqueues a sample if the upstream counted the tokens of the prompt.
func (c *clientRequest) learn(u dialect.Usage) {
	n := cmp.Or(c.overflow, u.PromptTokens)
	if c.overflow == 0 && (u.Estimated || u.CachedTokens >= n) { // without tokens, or those of the cache are not counted
		return
	}
	r, ok := c.registration()
	if !ok || !c.exchange.Operation.IsChat() {
		return
	}
	m := c.sample(r, n)
	m.connector, m.refused = c.exchange.Connector, c.overflow > 0
	c.completions.learn(m)
}
