package agent

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
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

	// Tests change these.
	pongTimeout  time.Duration
	silenceLimit time.Duration // 0: pongTimeout
	rescueMoment time.Duration
	firstUpgrade time.Duration
	lossSpan     time.Duration
	packets      func(*session) (sent, lost uint64)
	reloadPause  time.Duration

	mu      sync.Mutex // protects current and pending
	current *configuration
	pending pending
	wake    chan struct{} // room for one: the pending configuration has changed

	webDelay time.Duration // head start of QUIC in the next attempt
	loss     dial.LossGuard
	tunnels  sync.WaitGroup
	known    bool // the gateway has accepted this process before
	retry    retry

	budget   *memory.Budget
	monitor  monitor
	prober   *upstream.Prober
	rotation sync.Mutex // held while a token is rotated
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
		Options: o, pongTimeout: pongTimeout, silenceLimit: silenceLimit, rescueMoment: rescueMoment,
		firstUpgrade: firstUpgrade, lossSpan: dial.LossSpan, packets: (*session).packets, reloadPause: firstReloadPause,
		webDelay: webSocketDelay, wake: make(chan struct{}, 1),
		retry: newRetry(), monitor: monitor{logger: o.Logger},
	}
	a.monitor.enter(connecting, nil) // Run dials at once
	return a
}

// inUse returns the current configuration.
func (a *Agent) inUse() *configuration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// Run keeps a tunnel to the gateway up until ctx ends. Then running requests have the
// drain timeout to finish, and Run returns nil. Failures are logged and retried, except
// for a [FatalError]. Run must not be called concurrently.
func (a *Agent) Run(ctx context.Context) error {
	defer func() { a.inUse().proxy.Upstreams().CloseIdle() }() // of the last configuration
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		a.prober.Run(watching, func() upstream.Set { return a.inUse().proxy.Upstreams() })
	})
	defer watcher.Wait()
	defer stop()
	for first := true; ctx.Err() == nil; first = false {
		if !first {
			a.monitor.enter(connecting, nil)
		}
		end := a.runOnce(ctx)
		if ctx.Err() != nil {
			break
		}
		if kindOf(end.err) == endRemoved {
			a.known = false // refusals are final again
		}
		if a.UntilReplaced && kindOf(end.err) == endReplaced {
			a.Logger.Info("another process has taken the tunnel over")
			break
		}
		if fatal := a.fatal(end.err); fatal != nil {
			a.tunnels.Wait()
			a.monitor.enter(stopped, &Problem{Reason: fatal.Reason, Fix: fatal.Fix})
			a.Logger.Error("connector stopped", "reason", fatal.Reason, "fix", fatal.Fix)
			return fatal
		}
		pause := a.untilPending(a.retry.pause(end))
		a.report(end, waiting, pause)
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-time.After(pause):
		}
	}
	a.tunnels.Wait()
	a.monitor.enter(stopped, nil)
	a.Logger.Info("stopped")
	return nil
}

// Available returns the hint at a newer version.
func Available(newer string) string { return newer + " is available: run `connector update`" }

// runOnce establishes a tunnel, and serves it and its successors until they end.
func (a *Agent) runOnce(ctx context.Context) ending {
	s, err := a.establish(ctx)
	if err != nil {
		return ending{err: err}
	}
	for {
		a.Logger.Info("connected", "remote", s.conn.RemoteAddr().String(),
			"rtt", s.conn.RTT().Round(10*time.Microsecond).String(),
			"connector", s.config.hello.Connector, "session", s.welcome.Session, "gateway_version", s.welcome.Version, "transport", s.conn.Transport())
		if newer := s.newer(); newer != "" {
			a.Logger.Info(Available(newer))
		}
		a.monitor.online(s, true)
		a.known = true
		end, next := a.maintain(ctx, s)
		if next == nil {
			return end
		}
		s = next
	}
}
