package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link/bodies"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/upstream"
)

// Options configures an [Agent]. The zero value works.
type Options struct {
	// Logger logs state changes, and requests at debug level. Default: none.
	Logger *slog.Logger
	// DrainTimeout bounds running requests after Run's context has ended. After a reload, it bounds the end
	// of a tunnel without requests. Default: 30s.
	DrainTimeout time.Duration
}

// Agent is a connector. Create it with [New]. It outlives reloads; an instance runs the tunnels of one configuration.
type Agent struct {
	Options

	// Constants, except in tests.
	lostAfter     time.Duration
	notAtAfter    time.Duration // of an outage, until other edges learn of it
	confirmLimit  time.Duration
	dialLimit     time.Duration
	firstUpgrade  time.Duration
	takeoverLimit time.Duration

	current   atomic.Pointer[instance]
	reloading sync.Mutex     // serializes reloads
	takeovers chan takeover  // from Reload to Run
	drains    sync.WaitGroup // of instances that were taken over
	ended     chan struct{}  // closed when Run returns

	budget  *memory.Budget
	bodies  *bodies.Cache
	monitor monitor
	prober  *upstream.Prober
}

// New checks the configuration, reads the upstreams' keys and returns a
// connector that is ready to run. Its errors name the field and the fix.
func New(c config.Config, o Options) (*Agent, error) {
	a := newAgent(o)
	a.budget, a.prober = memory.NewBudget(c.MemoryBudget()), upstream.NewProber(a.Logger)
	first, err := a.newConfiguration(c, nil)
	if err != nil {
		return nil, err
	}
	a.current.Store(a.newInstance(first))
	return a, nil
}

func newAgent(o Options) *Agent {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 30*time.Second)
	a := &Agent{
		Options: o, lostAfter: lostAfter, notAtAfter: notAtAfter, confirmLimit: confirmLimit, dialLimit: dialLimit,
		firstUpgrade: firstUpgrade, takeoverLimit: takeoverLimit,
		takeovers: make(chan takeover), ended: make(chan struct{}),
	}
	a.bodies = bodies.NewCache(func(size int64) int64 { return size - *a.current.Load().config.hello.KeptPrompts })
	return a
}

// Run keeps a tunnel to the gateway up, or to each of a cluster, until ctx ends. Then running
// requests get the drain timeout to finish, and Run returns nil. Failures are logged and
// retried, except for a [FatalError]. Run must be called once.
func (a *Agent) Run(ctx context.Context) error {
	defer close(a.ended)
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		a.prober.Run(watching, func() upstream.Set { return a.current.Load().config.proxy.Upstreams() })
	})
	defer watcher.Wait()
	defer stop()
	running := a.current.Load()
	running.start(ctx)
	for {
		select {
		case t := <-a.takeovers:
			running = a.takeOver(ctx, running, t)
		case <-running.done:
			a.drains.Wait()
			return a.result(running)
		}
	}
}

// result logs why the last instance has ended, and returns the error of Run.
func (a *Agent) result(last *instance) error {
	if fatal, ok := errors.AsType[*FatalError](context.Cause(last.ctx)); ok {
		a.Logger.Error("connector stopped", "reason", fatal.Reason, "fix", fatal.Fix)
		return fatal
	}
	a.Logger.Info("stopped")
	return nil
}
