package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/service"
	"github.com/postern-dev/postern/connector/version"
)

const (
	// onlineTimeout is how long the tunnel of a restarted service may take to come up. A service that no longer runs
	// after startTimeout has failed.
	onlineTimeout = time.Minute
	startTimeout  = 5 * time.Second
	systemd       = "linux-systemd"
	// launchd is the platform whose stop and start do not wait for the process.
	launchd = "darwin-launchd"
)

func serviceRestart(sys system) *cobra.Command {
	var f serviceFlags
	command := &cobra.Command{
		Use:   "restart",
		Short: "Restart the service, and wait until it is online",
		Long: `Restarts the service, or starts it if it is stopped, and waits until its tunnel is
up. Running requests first have 30 seconds to finish (--drain-timeout of
"connector service install"). The install line does this after it has replaced the
program.

Exit codes: 0 the tunnel is up, 1 failure, or the tunnel is down after a minute,
5 the service is not installed.`,
		Example: `  sudo connector service restart
  connector service restart --user`,
		Args: cobra.NoArgs,
		RunE: f.onInstalled(sys, func(ctx context.Context, s installed) error {
			if err := s.needRoot(sys, "restart"); err != nil {
				return err
			}
			where, err := s.selector(f.config)
			if err != nil {
				return err
			}
			ctx, stop := sys.signals(ctx) // an interrupted restart must not leave the service stopped
			defer stop()
			fmt.Fprintf(sys.stdout, "Restarting the service %s; running requests may finish first.\n", s.plan.Name)
			if err := s.restart(context.WithoutCancel(ctx), sys, where); err != nil {
				return failed(explainManager("restarting the service", err, s.plan.User))
			}
			return s.awaitOnline(ctx, sys, where)
		}),
	}
	f.flags(command, userHelp)
	command.Flags().StringVarP(&f.config, "config", "c", "",
		"configuration `FILE` of a user's service (default: the file written by connector pair)")
	return command
}

// selector returns where the connector of the service answers.
func (s installed) selector(config string) (selector, error) {
	if socket := serviceSocket(s.plan.Name); socket != "" && !s.plan.User {
		return selector{socket: socket}, nil
	}
	if config == "" && s.plan.Name != service.DefaultName {
		return selector{}, errors.New("--config: missing; name the configuration of this service")
	}
	return selector{config: config}, nil
}

// restart restarts the service, or starts it if it does not run.
func (s installed) restart(ctx context.Context, sys system, where selector) error {
	switch {
	case s.state != service.Running:
		return s.Start()
	case s.Platform() != launchd:
		return s.Restart()
	}
	if err := s.Stop(); err != nil {
		return err
	}
	for limit := time.Now().Add(onlineTimeout); time.Now().Before(limit); {
		if _, _, err := findConnector(ctx, sys, where); err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return s.Start()
}

// awaitOnline waits until the service is online with this program.
func (s installed) awaitOnline(ctx context.Context, sys system, where selector) error {
	err := waitOnline(ctx, sys, where, startTimeout)
	if state, _ := s.State(); err != nil && state == service.Running {
		err = waitOnline(ctx, sys, where, onlineTimeout-startTimeout)
	}
	if err != nil {
		return failed(fmt.Errorf("the service has restarted, but %w; see `%s`", err, s.plan.LogCommand()))
	}
	r, _, err := findConnector(ctx, sys, where)
	if err != nil {
		return err
	}
	if r.Version != version.Number() {
		return failed(fmt.Errorf("the service runs another program than %s, of version %s; update that one as it was "+
			"installed", sys.executable, r.Version))
	}
	fmt.Fprintf(sys.stdout, "The service runs version %s: %s.\n", r.Version, oneLine(r.Status))
	return nil
}
