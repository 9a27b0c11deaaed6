package agent

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// A panic while a request is served ends that request. A panic at a message of the gateway ends
// the tunnel, and the connector dials again.
func TestPanics(t *testing.T) {
	g, log := startGateway(t), caught.New()
	startAgent(t, g, "http://127.0.0.1:1", func(a *instance) {
		a.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		a.config.proxy = upstream.NewProxy(a.config.proxy.Upstreams(), upstream.Options{Logger: a.Logger, Prober: a.prober})
	})
	s := g.session()
	ask := func(s *fakeSession, want error) {
		t.Helper()
		if _, err := s.roundTrip(post(t.Context(), "{}")); !errors.Is(err, want) {
			t.Errorf("the request has ended with %v, not %v", err, want)
		}
	}
	log.PanicAt("upstream is down")
	ask(s, link.ErrInternal)
	log.Expect(t, "serving a request", 1)
	log.PanicAt("gateway is shutting down")
	ask(s, link.ErrUpstreamDown)
	if err := s.control.Send(link.Drain{}); err != nil {
		t.Fatal(err)
	}
	wait.For(t, s.conn.Context().Done(), "the end of the tunnel")
	log.Expect(t, "reading from the gateway", 1)
	ask(g.session(), link.ErrUpstreamDown)
}
