package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/service"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/tty"
	"github.com/postern-dev/postern/connector/update"
	"github.com/postern-dev/postern/connector/version"
)

// askTimeout bounds the request to the gateway for a newer version.
const askTimeout = 30 * time.Second

func updateCommand(sys system) *cobra.Command {
	var path string
	var check bool
	command := &cobra.Command{
		Use:   "update [--config FILE] [--check]",
		Short: "Update this program to the version that the gateway hands out",
		Long: `Asks the gateway for a newer version of this program, downloads it, and checks its
hash, which comes through the tunnel. First, a process of the new version takes over the
tunnel. If that works, the new version replaces this program, and the services that run
this program are restarted, one after the other. No request is lost. A service that does
not come up again gets the old version back.

A connector that does not run as a service keeps running the old version until it is
restarted. A program that was installed by a package manager is not changed.

Exit codes: 0 success, or already current; 1 failure, and the old version stays;
2 invalid flags or configuration.`,
		Example: `  sudo connector update
  connector update --check`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := sys.signals(command.Context())
			defer stop()
			return updateProgram(ctx, sys, path, check)
		},
	}
	command.Flags().StringVarP(&path, "config", "c", "",
		"configuration `FILE` of a connector of the gateway (default: that of a service, then as for `connector run`)")
	command.Flags().BoolVar(&check, "check", false, "only show whether a newer version is available")
	return command
}

func updateProgram(ctx context.Context, sys system, path string, check bool) error {
	if sys.executable == "" {
		return failed(errors.New("the path of this program is unknown"))
	}
	services, err := runningServices(sys)
	if err != nil {
		return failed(err)
	}
	if path, err = configToAsk(sys, path, services); err != nil {
		return err
	}
	loaded, err := sys.load(path)
	if err != nil {
		return err
	}
	offer, err := askOffer(ctx, loaded.Config)
	if err != nil {
		return failed(err)
	}
	running := strings.TrimPrefix(version.Number(), "v")
	if version.Newer(offer.Version, running) {
		fmt.Fprintf(sys.stdout, "Version %s is available; this is %s.\n", text.Line(offer.Version), running)
	} else {
		fmt.Fprintf(sys.stdout, "This is version %s, and the gateway hands out %s: nothing to update.\n", running,
			text.Line(offer.Version))
		offer = nil
	}
	if check {
		return nil
	}
	unlock, err := lockProgram(ctx, sys)
	if err != nil {
		return failed(err)
	}
	defer unlock()
	u := &update.Update{
		Program: update.Program(sys.executable), Version: version.Number(), Offer: offer, Config: path, Services: services,
		Inspect: func(ctx context.Context, socket string) (update.Process, error) {
			r, _, err := findConnector(ctx, sys, path, socket)
			return update.Process{
				PID: r.PID, Version: r.Version, Online: r.State == agent.StateOnline,
				State: oneLine(r.Status),
			}, err
		},
		Report: func(format string, values ...any) {
			fmt.Fprintln(sys.stdout, text.Line(fmt.Sprintf(format, values...)))
		},
		Progress: progressOn(sys.stderr),
	}
	if err := u.Run(ctx); err != nil {
		return failed(err)
	}
	return nil
}

// askOffer returns the connector that the gateway hands out for this system.
func askOffer(ctx context.Context, c config.Config) (*link.Offer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	welcome, err := agent.Ask(ctx, c, version.Number())
	switch {
	case err != nil:
		reason, fix := agent.Explain(err)
		return nil, fmt.Errorf("asking the gateway for a newer version: %s; %s", reason,
			cmp.Or(fix, "see `connector doctor`"))
	case welcome.Offer == nil:
		return nil, fmt.Errorf("the gateway (version %s) has no connector for %s; put its archive into the gateway's "+
			"folder of connectors, or install the new version yourself", welcome.Version, version.Platform())
	}
	return welcome.Offer, nil
}

// runningServices returns the running services of this program. It prints the services of other
// users, who have to restart them.
func runningServices(sys system) (services []update.Service, err error) {
	plans, err := sys.installed()
	if err != nil {
		return nil, err
	}
	for _, plan := range plans {
		if plan.Executable != sys.executable &&
			(runtime.GOOS != "windows" || !strings.EqualFold(plan.Executable, sys.executable)) {
			continue
		}
		if plan.User && plan.Home != sys.getenv("HOME") && runtime.GOOS != "windows" {
			fmt.Fprintf(sys.stdout, "The service %s of the user with the home %s runs this program, too. After the update, "+
				"run as that user: connector update\n", plan.Name, text.Line(plan.Home))
			continue
		}
		manager, err := sys.services(plan)
		if err != nil {
			return nil, err
		}
		state, err := manager.State()
		if err != nil {
			return nil, err
		}
		if state == service.NotInstalled || state == service.Stopped {
			continue
		}
		socket := ""
		if !plan.User {
			socket = serviceSocket(plan.Name)
		}
		if socket == "" {
			if socket, err = socketPath(sys.getenv, plan.Config, ""); err != nil {
				return nil, err
			}
		}
		services = append(services, update.Service{Plan: plan, Restart: manager.Restart, Socket: socket})
	}
	return services, nil
}

// configToAsk returns the configuration of the connector that asks the gateway.
func configToAsk(sys system, path string, services []update.Service) (string, error) {
	switch {
	case path != "":
		return filepath.Abs(path)
	case len(services) > 0:
		return services[0].Config, nil
	default:
		return sys.pairedConfig(), nil
	}
}

// lockProgram keeps other updates of this program out until unlock is called.
func lockProgram(ctx context.Context, sys system) (unlock func(), err error) {
	path, err := socketPath(func(name string) string {
		if name == "RUNTIME_DIRECTORY" {
			return ""
		}
		return sys.getenv(name)
	}, sys.executable, "")
	if err != nil {
		return nil, err
	}
	listener, err := openSocket(ctx, path)
	if errors.As(err, new(*busyError)) {
		return nil, errors.New("another update of this program is running")
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = listener.Close() }, nil
}

// progressOn returns a function that shows the progress of a download on a terminal.
func progressOn(w io.Writer) update.Progress {
	if !tty.Is(w) {
		return nil
	}
	last := int64(-1)
	return func(received, total int64) {
		if percent := received * 100 / total; percent != last {
			last = percent
			fmt.Fprintf(w, "\rDownloading: %d %%", percent)
			if percent == 100 {
				fmt.Fprintln(w)
			}
		}
	}
}
