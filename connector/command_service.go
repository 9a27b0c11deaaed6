package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/service"
)

// serviceFlags are the flags of the service commands.
type serviceFlags struct {
	name    string
	config  string
	user    bool
	noStart bool
	drain   time.Duration
}

func serviceCommand(sys system) *cobra.Command {
	command := &cobra.Command{
		Use:   "service",
		Short: "Run the connector as a service",
		Long: `Runs the connector as a service of systemd, launchd or Windows.

As root, it is installed as a system service. With systemd, that service runs as an
unprivileged user of its own and gets the configuration and keys from systemd.
Otherwise, or with --user, it is installed as a service of the current user, which
needs no privileges.

For several services on one machine, give each additional one a --name and a separate
configuration.

The log of the service, and whether it runs:
  Linux    journalctl -u postern-connector; systemctl status postern-connector
           (journalctl --user and systemctl --user with --user)
  macOS    ~/Library/Logs/postern-connector.log; launchctl list postern-connector
  Windows  %ProgramData%\postern\postern-connector.log; Get-Service postern-connector`,
		RunE: func(command *cobra.Command, args []string) error {
			if err := cobra.NoArgs(command, args); err != nil {
				return seeHelp(command, err)
			}
			return command.Help()
		},
	}
	command.AddCommand(serviceInstall(sys), serviceRestart(sys), serviceUninstall(sys))
	return command
}

func serviceInstall(sys system) *cobra.Command {
	var f serviceFlags
	command := &cobra.Command{
		Use:   "install [--config FILE]",
		Short: "Install and start the service",
		Long: `Installs this program as a service with a configuration, and starts it. The service
starts at boot or, with --user, with the user's session.

Exit codes: 0 success, 1 failure, 2 invalid flags or configuration.`,
		Example: `  sudo connector service install --config /etc/postern/connector.json
  sudo connector service install --name postern-rack --config /etc/postern/rack.json
  connector service install --user`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return installService(sys, f) },
	}
	flags := command.Flags()
	flags.StringVarP(&f.config, "config", "c", "", "configuration `FILE` (default: the file written by connector pair)")
	f.flags(command, "install a service of the current user")
	flags.BoolVar(&f.noStart, "no-start", false, "do not start the service")
	flags.DurationVar(&f.drain, "drain-timeout", defaultDrain, "`TIME` for running requests to finish on shutdown")
	return command
}

func installService(sys system, f serviceFlags) error {
	plan, err := servicePlan(sys, f)
	if err != nil {
		return err
	}
	manager, err := sys.services(plan)
	if err != nil {
		return failed(err)
	}
	if state, err := manager.State(); err == nil && state != service.NotInstalled {
		return failed(fmt.Errorf("the service is already installed; to restart it, run: connector service restart%s; "+
			"to change it, first run: connector service uninstall%[1]s", serviceOf(plan)))
	}
	if err := manager.Install(); err != nil {
		_ = manager.Uninstall() // remove a partial installation
		return failed(explainManager("installing the service", err, plan.User))
	}
	fmt.Fprintf(sys.stdout, "Installed the service %s (%s).\n", plan.Name, manager.Platform())
	if plan.User && manager.Platform() == systemd {
		fmt.Fprintln(sys.stdout, "It stops when you log out, unless you run:  sudo loginctl enable-linger "+
			sys.getenv("USER"))
	}
	if f.noStart {
		return nil
	}
	if err := manager.Start(); err != nil {
		return failed(fmt.Errorf("the service is installed but does not start: %w; see `%s`", err, plan.LogCommand()))
	}
	fmt.Fprintln(sys.stdout, "It is running. Check it with:  "+statusOf(plan))
	return nil
}

// statusOf returns the command that shows the status of a service's connector.
func statusOf(p service.Plan) string {
	socket := serviceSocket(p.Name)
	switch {
	case p.User || socket == "":
		return "connector status --config " + p.Config
	case p.Name == service.DefaultName:
		return "sudo connector status"
	default:
		return "sudo connector status --socket " + socket
	}
}

// servicePlan checks everything that the service needs, while a person sees the errors.
func servicePlan(sys system, f serviceFlags) (service.Plan, error) {
	if f.drain <= 0 {
		return service.Plan{}, fmt.Errorf("--drain-timeout: %v is not a duration; use something like 30s", f.drain)
	}
	path := f.config
	if path == "" {
		if path = sys.writtenConfig(); path == "" {
			return service.Plan{}, fmt.Errorf("no configuration found%s; pair this machine with `connector pair`, or use "+
				"--config FILE", sys.missingConfigs())
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return service.Plan{}, err
	}
	// The service does not inherit this environment.
	loaded, err := config.Load(path, func(string) string { return "" })
	if err != nil {
		return service.Plan{}, fmt.Errorf("%w\nA service reads its configuration file only, and does not use this "+
			"environment", err)
	}
	if _, err := agent.New(loaded.Config, agent.Options{}); err != nil {
		return service.Plan{}, err
	}
	endpoints, err := loaded.Config.Endpoints()
	if err != nil {
		return service.Plan{}, err
	}
	plan := basePlan(sys, f)
	plan.Config = path
	for _, e := range endpoints {
		if e.KeyFile != "" {
			plan.Keys = append(plan.Keys, e.KeyFile)
		}
	}
	return plan, plan.Check()
}

// basePlan returns the part of the plan that all commands need.
func basePlan(sys system, f serviceFlags) service.Plan {
	plan := service.Plan{
		Name: f.name, Executable: sys.executable, User: f.user || !sys.root, Drain: f.drain, Home: sys.getenv("HOME"),
	}
	if account := sys.getenv("SUDO_USER"); account != "" && !plan.User {
		if u, err := user.Lookup(account); err == nil {
			plan.Account, plan.Home = account, u.HomeDir
		}
	}
	return plan
}

// userHelp describes --user for commands on an installed service.
const userHelp = "use the current user's service, not the system service"

func (f *serviceFlags) flags(command *cobra.Command, user string) {
	command.Flags().BoolVar(&f.user, "user", false, user)
	command.Flags().StringVar(&f.name, "name", service.DefaultName,
		"`NAME` of the service, for several connectors on one machine")
}

// serviceOf returns the flags that select the same service in another command.
func serviceOf(p service.Plan) (flags string) {
	if p.User {
		flags = " --user"
	}
	if p.Name != service.DefaultName {
		flags += " --name " + p.Name
	}
	return flags
}

// explainManager adds the most likely fix to an error of the service manager.
func explainManager(doing string, err error, user bool) error {
	err = fmt.Errorf("%s: %w", doing, err)
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; run it with sudo (on Windows: as administrator), or with --user", err)
	case user && runtime.GOOS == "linux":
		return fmt.Errorf("%w; a user's service needs that user's session (not su or sudo): log in as that user", err)
	default:
		return err
	}
}

// installed is an installed service.
type installed struct {
	service.Manager
	plan  service.Plan
	state service.State
}

// onInstalled returns a command's RunE. It calls run with the installed service: the current user's,
// or else the system service.
func (f *serviceFlags) onInstalled(
	sys system, run func(ctx context.Context, s installed) error,
) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, _ []string) error {
		plan := basePlan(sys, *f)
		if err := service.CheckName(plan.Name); err != nil {
			return fmt.Errorf("--name: %w", err)
		}
		for {
			manager, err := sys.services(plan)
			if errors.Is(err, service.ErrNoManager) {
				return &exitError{exitMissing, err}
			}
			if err != nil {
				return failed(err)
			}
			state, err := manager.State()
			switch {
			case state == service.NotInstalled && plan.User && !f.user:
				plan.User = false // try the system service
				continue
			case err != nil:
				return failed(err)
			case state == service.NotInstalled:
				return &exitError{exitMissing, fmt.Errorf("the service %s is not installed; install it with `connector service "+
					"install%s`", plan.Name, serviceOf(service.Plan{Name: f.name, User: f.user}))}
			}
			return run(command.Context(), installed{manager, plan, state})
		}
	}
}

// needRoot fails if the user must not change the service.
func (s installed) needRoot(sys system, command string) error {
	if s.plan.User || sys.root {
		return nil
	}
	return failed(fmt.Errorf("this is a system service; run: sudo connector service %s%s", command, serviceOf(s.plan)))
}

func serviceUninstall(sys system) *cobra.Command {
	var f serviceFlags
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop and remove the service",
		Long: `Stops the service after its running requests, and removes it. The configuration is
kept.

Exit codes: 0 success, 1 failure, 5 the service is not installed.`,
		Example: `  sudo connector service uninstall
  connector service uninstall --user`,
		Args: cobra.NoArgs,
		RunE: f.onInstalled(sys, func(_ context.Context, s installed) error {
			if err := s.needRoot(sys, "uninstall"); err != nil {
				return err
			}
			if s.state == service.Running {
				if err := s.Stop(); err != nil {
					return failed(explainManager("stopping the service", err, s.plan.User))
				}
			}
			if err := s.Uninstall(); err != nil {
				return failed(explainManager("removing the service", err, s.plan.User))
			}
			fmt.Fprintf(sys.stdout, "Removed the service %s. Its configuration was kept.\n", s.plan.Name)
			return nil
		}),
	}
	f.flags(command, userHelp)
	return command
}
