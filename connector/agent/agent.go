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
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/bodies"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/upstream"
)

// Options configures an [Agent]. The zero value works.
type Options struct {
	// Logger logs state changes, and requests at debug level. Default: none.
	Logger *slog.Logger
	// Version is sent to the gateway. Default: "dev".
	Version string
	// DrainTimeout bounds running requests after Run's context has ended. Default: 30s.
	DrainTimeout time.Duration
	// Keep replaces the tunnel token in the stored configuration. It must be durable
	// when Keep returns. On an error the old token must still be stored.
	// Default: tokens cannot be stored.
	Keep func(old, renewed string) error
	// UntilReplaced ends Run when another process has taken the tunnel over. Otherwise,
	// the agent takes it back after a pause.
	UntilReplaced bool
}

// Agent is a connector. Create it with [New].
type Agent struct {
	Options

	// Constants, except in tests.
	lostAfter    time.Duration
	confirmLimit time.Duration
	dialLimit    time.Duration
	firstUpgrade time.Duration
	reloadPause  time.Duration

	mu      sync.Mutex // guards the fields up to live
	current *configuration
	pending pending
	legs    []*leg     // at least one
	edges   link.Edges // of the cluster; Edge is "" without a cluster
	live    []*session // tunnels to edges

	started time.Time
	hellos  chan struct{} // of capacity 1; full while a hello awaits its answer
	tunnels sync.WaitGroup
	others  sync.WaitGroup          // all legs except the first
	end     context.CancelCauseFunc // ends all legs; set by Run
	known   atomic.Bool             // a gateway has accepted this process before

	budget   *memory.Budget
	kept     *bodies.Cache
	monitor  monitor
	prober   *upstream.Prober
	rotation sync.Mutex // locked during a rotation
}

// New checks the configuration, reads the upstreams' keys and returns a
// connector that is ready to run. Its errors name the field and the fix.
func New(c config.Config, o Options) (*Agent, error) {
	a := newAgent(o)
	a.budget, a.prober = memory.NewBudget(c.MemoryBudget()), upstream.NewProber(a.Logger)
	var err error
	if a.current, err = a.newConfiguration(c); err != nil {
		return nil, err
	}
	return a, nil
}

func newAgent(o Options) *Agent {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Version, o.DrainTimeout = cmp.Or(o.Version, "dev"), cmp.Or(o.DrainTimeout, 30*time.Second)
	a := &Agent{
		Options: o, lostAfter: lostAfter, confirmLimit: confirmLimit, dialLimit: dialLimit,
		firstUpgrade: firstUpgrade, reloadPause: firstReloadPause,
		started: time.Now(), hellos: make(chan struct{}, 1),
	}
	a.kept = bodies.NewCache(func(size int64) int64 { return size - *a.inUse().hello.KeptPrompts })
	a.newLeg(newRetry())
	return a
}

// inUse returns the current configuration.
func (a *Agent) inUse() *configuration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// Run keeps a tunnel to the gateway up, or to two of a cluster, until ctx ends. Then running
// requests have the drain timeout to finish, and Run returns nil. Failures are logged and
// retried, except for a [FatalError]. Run must not be called concurrently.
func (a *Agent) Run(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		a.prober.Run(watching, func() upstream.Set { return a.inUse().proxy.Upstreams() })
	})
	defer watcher.Wait()
	defer stop()
	running, end := context.WithCancelCause(ctx)
	a.end = end
	end(a.legs[0].run(running))
	a.others.Wait()
	a.tunnels.Wait()
	var fatal *FatalError
	switch cause := context.Cause(running); {
	case errors.As(cause, &fatal):
		a.stop(&Problem{Reason: fatal.Reason, Fix: fatal.Fix})
		a.Logger.Error("connector stopped", "reason", fatal.Reason, "fix", fatal.Fix)
		return fatal
	case errors.Is(cause, errTaken):
		a.Logger.Info("another process has taken the tunnel over")
	}
	a.stop(nil)
	a.Logger.Info("stopped")
	return nil
}

// stop enters the last state of all legs.
func (a *Agent) stop(problem *Problem) {
	for _, l := range a.allLegs() {
		l.enter(stopped, problem)
	}
}
