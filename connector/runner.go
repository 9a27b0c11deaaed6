package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/wait"
)

// defaultDrain is how long running requests may take to finish on shutdown.
const defaultDrain = 30 * time.Second

// runOptions are the flags of the run command.
type runOptions struct {
	config  string        // path; "": use the environment alone
	drain   time.Duration // 0: stop at once
	socket  string        // control socket; "": derived from the configuration
	metrics string        // address for health checks and metrics; "": none
}

// runner is a running connector with its control socket, metrics and status reports.
type runner struct {
	sys     system
	options runOptions
	logger  *slog.Logger
	agent   *agent.Agent
	notify  *notifier
	started time.Time
	reloads sync.Mutex // serializes reloads

	processors processors
}

// isCopy reports whether the configuration is a copy that systemd passes to this service.
func (o runOptions) isCopy(getenv func(string) string) bool {
	dir := getenv("CREDENTIALS_DIRECTORY")
	return dir != "" && strings.HasPrefix(o.config, dir+string(filepath.Separator))
}

// serve runs the connector until a signal arrives or the command's context ends.
func serve(command *cobra.Command, sys system, o runOptions, logger *slog.Logger) error {
	loaded, err := sys.load(o.config)
	if err != nil {
		return err
	}
	// Some libraries log only to the default logger.
	slog.SetDefault(logger)
	for _, warning := range loaded.Warnings {
		logger.Warn(warning)
	}
	connector, err := agent.New(loaded.Config, agent.Options{
		Logger: logger, DrainTimeout: max(o.drain, time.Nanosecond),
	})
	if err != nil {
		return err
	}
	r := &runner{
		sys: sys, options: o, logger: logger, agent: connector,
		notify: newNotifier(sys.getenv, os.Getpid()), started: time.Now(),
	}
	metrics, err := r.openMetrics()
	if err != nil {
		return err
	}
	if metrics != nil {
		defer metrics.Close()
	}
	control, socket, err := r.openControl(connector.Status().Connector)
	if err != nil {
		return err
	}
	r.notify.send("READY=1")
	ctx, end := context.WithCancel(context.Background())
	var background sync.WaitGroup
	defer background.Wait()
	defer end()
	background.Go(func() { r.serveHTTP(ctx, metrics, r.metricsHandler()) })
	background.Go(func() { r.serveControl(ctx, control, socket) })
	background.Go(func() { r.reportToSystemd(ctx) })
	background.Go(func() { r.watchProcessors(ctx) })
	background.Go(func() { r.hangups(ctx) })
	return r.run(command.Context())
}

// run runs the agent until it ends, or the first signal stops it.
func (r *runner) run(ctx context.Context) error {
	signaled, stop := r.sys.signals(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- r.agent.Run(ctx) }()
	var err error
	select {
	case err = <-finished:
	case <-signaled.Done():
		stop() // the next signal kills the process
		r.logger.Info("stopping; another signal stops at once")
		r.notify.send("STOPPING=1")
		cancel()
		err = <-finished
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// reportToSystemd sends the state for `systemctl status`, and watchdog messages. A deadlock of
// the agent stops both.
func (r *runner) reportToSystemd(ctx context.Context) {
	last := ""
	for {
		changed := r.agent.Changed()
		text := oneLine(r.agent.Status())
		var due <-chan time.Time
		if r.notify.every > 0 {
			r.notify.send("WATCHDOG=1")
			due = time.After(r.notify.every)
		}
		if text != last {
			last = text
			r.notify.send("STATUS=" + text)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-due:
		}
		if wait.For(ctx, time.Second/2) != nil {
			return
		}
	}
}

func (r *runner) hangups(ctx context.Context) {
	if r.sys.hangups == nil {
		return
	}
	signals, stop := r.sys.hangups()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			if err := r.reload(); err != nil {
				r.logger.Error("failed to reload; the old configuration stays", "error", err)
			}
		}
	}
}

// reload reloads the configuration. An error means that nothing has changed.
func (r *runner) reload() error {
	r.reloads.Lock()
	defer r.reloads.Unlock()
	if r.options.config == "" {
		return errors.New("this connector is configured by its environment, which cannot be reloaded; restart it, or give " +
			"it a file with --config")
	}
	if r.options.isCopy(r.sys.getenv) {
		return errors.New("systemd updates this service's copy of the configuration only when it starts; run: sudo " +
			"systemctl restart " + filepath.Base(r.sys.getenv("CREDENTIALS_DIRECTORY")))
	}
	loaded, err := config.Load(r.options.config, r.sys.getenv)
	if err != nil {
		return err
	}
	for _, warning := range loaded.Warnings {
		r.logger.Warn(warning)
	}
	return r.agent.Reload(loaded.Config)
}
