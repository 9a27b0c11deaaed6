package agent

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestHandOver: while a new configuration has no tunnel to an edge, the former one serves there.
func TestHandOver(t *testing.T) {
	t.Parallel()
	c := startEdges(t, "a", "b")
	a := c.startLegs(answerWith(t, "old"), nil)
	c.awaitLegs(a, 2)
	former := a.current.Load()
	var open atomic.Bool
	asked := make(chan struct{}, 100)
	c.edges["b"].SetOptions(tunnel.Options{
		Members: func() tunnel.Members { return c.members("b") },
		Authenticate: func(ctx context.Context, id, secret string) (tunnel.Connector, error) {
			if !open.Load() {
				asked <- struct{}{}
				return tunnel.Connector{}, tunnel.ErrUnavailable
			}
			return c.authenticate(ctx, id, secret)
		},
	})
	next := config.Config{
		TunnelToken: c.token.Encode(), Transport: config.TransportQUIC,
		Upstreams: map[string]config.Upstream{"box": {BaseURL: answerWith(t, "new") + "/v1"}}, MaxRequests: 7,
	}
	if err := a.Reload(next); err != nil {
		t.Fatal(err)
	}
	wait.For(t, asked, "the hello at the other edge")
	wait.Until(t, "the new tunnel", func() bool { s := c.edges["a"].Sessions(); return len(s) == 1 && s[0].Limit == 7 })
	c.answers("a", "new")
	c.answers("b", "old")
	if former.ctx.Err() != nil {
		t.Error("the former instance has ended")
	}
	open.Store(true)
	wait.For(t, former.done, "the end of the former instance")
	c.answers("b", "new")
	if log := a.log.String(); strings.Contains(log, "disconnected") || strings.Contains(log, "level=ERROR") {
		t.Errorf("log %s", log)
	}
}
