package serve

import (
	"slices"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// minBytesPerToken is the size of a token that text hardly goes below. Smaller bodies fit into a window, and are not
// counted.
const minBytesPerToken = 2

// window returns the context window of a deployment through a connector. ok is false if the connector is offline, or
// its model server cannot be reached.
func (s *Server) window(ex *Exchange, d *store.Deployment, connector string) (w observed.Window, ok bool) {
	route, ok := s.Route(connector, tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model})
	if !ok || !route.State.Reachable() {
		return w, false
	}
	return ex.backend.Observed.Window(d, connector, route), true
}

// smallestWindow returns the smallest known context window of a deployment through the connectors that can serve it,
// or 0.
func (s *Server) smallestWindow(ex *Exchange, d *store.Deployment) (smallest int) {
	for _, connector := range d.Connectors {
		if w, _ := s.window(ex, d, connector); w.Tokens > 0 && (smallest == 0 || w.Tokens < smallest) {
			smallest = w.Tokens
		}
	}
	return smallest
}

// fitPrompt counts the prompt if it may be longer than a context window of its deployment. It refuses a prompt that is
// surely longer than the windows of all connectors that can serve it. Router omits the others.
func (c *clientRequest) fitPrompt() *dialect.Error {
	c.sizes = nil
	if !c.exchange.Operation.IsChat() || c.deployment.Options.Overflow == compat.OverflowPass {
		return nil
	}
	smallest := c.smallestWindow(c.exchange, &c.deployment)
	if smallest == 0 || c.size+c.kept < minBytesPerToken*int64(smallest) || !c.measure() {
		return nil
	}
	var size tokens.Size // of the prompt, in the largest window
	var largest observed.Window
	for i, connector := range c.deployment.Connectors {
		w, ok := c.window(c.exchange, &c.deployment, connector)
		switch {
		case !ok:
		case w.Tokens == 0 || c.sizes[i].Min() <= w.Tokens:
			return nil
		case w.Tokens > largest.Tokens:
			size, largest = c.sizes[i], w
		}
	}
	if largest.Tokens == 0 {
		return nil
	}
	return dialect.PromptTooLong(size.Known+size.Rest, largest.Tokens, largest.Cuts)
}

// measure finds the sizes of the prompt through the connectors of its deployment, unless they are known. It waits for a
// turn. It reports false if the request has ended, or there was no turn: the model server counts the prompt then.
func (c *clientRequest) measure() bool {
	if c.sizes != nil {
		return true
	}
	leave, err := c.enterCounting(c.ctx, turnWait)
	if err != nil {
		return false
	}
	defer leave()
	d := c.deployment
	sizes := c.completions.calibration.Sizes(c.ctx, registration(d), c.exchange.Key.ID(), c.call.Prompt(), d.Connectors)
	if c.ctx.Err() != nil {
		return false
	}
	c.sizes = sizes
	return true
}

// sizeThrough returns the size of the prompt through a connector. ok is false if it is not known.
func (m *modelRequest) sizeThrough(connector string) (size tokens.Size, ok bool) {
	if i := slices.Index(m.deployment.Connectors, connector); i >= 0 && m.sizes != nil {
		return m.sizes[i], true
	}
	return size, false
}

// unfit returns the connectors of the deployment that must not get the request: if the console names one, the others,
// else those whose context window is too small for the prompt. If each is too small, the windows have changed since the
// prompt was counted, and any may get it.
func (t *routing) unfit() map[string]bool {
	d, q := t.deployment, t.exchange.question
	named := q != nil && q.Connector != ""
	if t.sizes == nil && !named {
		return nil
	}
	unfit := make(map[string]bool)
	if named {
		for _, connector := range d.Connectors {
			unfit[connector] = connector != q.Connector
		}
		return unfit
	}
	for _, connector := range d.Connectors {
		size, known := t.sizeThrough(connector)
		if w, ok := t.window(t.exchange, d, connector); known && ok && w.Tokens > 0 && w.Tokens < size.Min() {
			unfit[connector] = true
		}
	}
	if len(unfit) == len(d.Connectors) {
		return nil
	}
	return unfit
}

// recordOverflow records the numbers of a model server's refusal of a prompt that is too long.
func (c *clientRequest) recordOverflow(derr *dialect.Error) {
	if derr == nil || derr.Kind != dialect.KindContextLength {
		return
	}
	if derr.Window > 0 {
		c.Observed.Refused(&c.deployment, c.exchange.Connector, int(derr.Window))
	}
	c.refusedTokens = derr.PromptTokens
}

// promptTokens returns the model server's count of a prompt. Some servers leave out what they have cached.
func promptTokens(u dialect.Usage) int64 {
	if u.CachedTokens >= u.PromptTokens {
		return u.PromptTokens + u.CachedTokens
	}
	return u.PromptTokens
}
