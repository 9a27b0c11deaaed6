package upstream

import (
	"context"
	"testing"

	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// A panic while an answer of a model server is handled ends that check. The next check follows.
func TestPanicOfCheck(t *testing.T) {
	l, url := newListing(t, `{"data": [{"id": "x"}]}`)
	log := caught.New()
	p, u := NewProber(log.Logger), upstreamAt(t, url)
	down := box(false)
	u.health.report.Store(&down)
	log.PanicAt("model server is reachable")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx, func() Set { return Set{"box": u} })
	}()
	log.Expect(t, "asking a model server for its models", 1)
	wait.Until(t, "the model server is asked again", func() bool { return l.asked.Load() >= 2 })
	stop()
	wait.For(t, ended, "the end of all checks")
}
