package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	lines   int
	follow  bool
}

func serviceCommand(sys system) *cobra.Command {
	command := &cobra.Command{
		Use:   "service",
		Short: "Let the machine start the connector, and start it again",
		Long: `Makes the connector a service: with systemd, launchd or the services of Windows.

As root it becomes a service of the machine. With systemd that one runs as a
user of its own, who may do nothing but connect, and gets the configuration and
keys from systemd. Otherwise, or with --user, it becomes a service of this user,
which needs no rights.

A machine can have several: give each but the first a --name, and a
configuration of its own.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(serviceInstall(sys), serviceUninstall(sys), serviceStatus(sys), serviceLogs(sys))
	return command
}

func serviceInstall(sys system) *cobra.Command {
	var f serviceFlags
	command := &cobra.Command{
		Use:   "install [--config FILE]",
		Short: "Install the service, and start it",
		Long: `Makes this program, with a configuration, a service that starts with the machine
(or, with --user, with the user's session), and starts it.

Exit codes: 0 done, 1 failed, 2 wrong flags or configuration.`,
		Example: `  sudo connector service install --config /etc/postern/connector.json
  sudo connector service install --name postern-rack --config /etc/postern/rack.json
  connector service install --user`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return installService(sys, f)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&f.config, "config", "c", "", "configuration `FILE` (default: what the command pair wrote)")
	f.flags(command, "make it a service of this user")
	flags.BoolVar(&f.noStart, "no-start", false, "do not start it now")
	flags.DurationVar(&f.drain, "drain-timeout", defaultDrain, "`TIME` that running requests have to finish when it stops")
	return command
}

func installService(sys system, f serviceFlags) error {
	plan, err := servicePlan(sys, f)
	if err != nil {
		return err
	}
	manager, err := sys.services(plan)
	if err != nil {
		return &runtimeError{err}
	}
	if state, err := manager.State(); err == nil && state != service.NotInstalled {
		return &runtimeError{errors.New("the service is installed already; to change it, first run: connector service uninstall" + serviceOf(plan))}
	}
	if err := manager.Install(); err != nil {
		_ = manager.Uninstall() // what there is of it
		return &runtimeError{explainManager("installing the service", err, plan.User)}
	}
	fmt.Fprintf(sys.stdout, "Installed the service %s (%s).\n", plan.Name, manager.Platform())
	if f.noStart {
		return nil
	}
	if err := manager.Start(); err != nil {
		return &runtimeError{fmt.Errorf("the service is installed, but does not start: %w; see `connector service logs%s`", err, serviceOf(plan))}
	}
	fmt.Fprintf(sys.stdout, "It runs. See what it does with:  connector service status%s\n", serviceOf(plan))
	if plan.User && runtime.GOOS == "linux" && service.HasSystemd() {
		fmt.Fprintln(sys.stdout, "It stops when you log out, unless you run:  sudo loginctl enable-linger "+sys.getenv("USER"))
	}
	return nil
}

// servicePlan checks all that the service will need, where a person still looks.
func servicePlan(sys system, f serviceFlags) (service.Plan, error) {
	if f.drain <= 0 {
		return service.Plan{}, fmt.Errorf("--drain-timeout: %v is no time; use something like 30s", f.drain)
	}
	path := f.config
	if path == "" {
		path = config.DefaultPath(sys.getenv)
		if _, err := os.Stat(path); path == "" || err != nil {
			return service.Plan{}, errors.New("there is no configuration; pair this machine with `connector pair`, or name a file with --config FILE")
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return service.Plan{}, err
	}
	// The service has another environment.
	loaded, err := config.Load(path, func(string) string { return "" })
	if err != nil {
		return service.Plan{}, fmt.Errorf("%w\nA service takes all from its file, and nothing from this environment", err)
	}
	if _, err := agent.New(loaded.Config, agent.Options{}); err != nil {
		return service.Plan{}, err
	}
	plan := basePlan(sys, f)
	plan.Config = path
	if loaded.Config.APIKeyFile != "" {
		plan.Keys = append(plan.Keys, loaded.Config.APIKeyFile)
	}
	for _, u := range loaded.Config.Upstreams {
		if u.APIKeyFile != "" {
			plan.Keys = append(plan.Keys, u.APIKeyFile)
		}
	}
	return plan, plan.Check()
}

// basePlan is what all commands need to know of the service.
func basePlan(sys system, f serviceFlags) service.Plan {
	plan := service.Plan{Name: f.name, Executable: sys.executable, User: f.user || !sys.root, Drain: f.drain, Home: sys.getenv("HOME")}
	if account := sys.getenv("SUDO_USER"); account != "" && !plan.User {
		if who, err := user.Lookup(account); err == nil {
			plan.Account, plan.Home = account, who.HomeDir
		}
	}
	return plan
}

// thisUsers describes --user where the service is there already.
const thisUsers = "this user's service, and not the machine's"

// flags adds the flags that say which service is meant.
func (f *serviceFlags) flags(command *cobra.Command, user string) {
	command.Flags().BoolVar(&f.user, "user", false, user)
	command.Flags().StringVar(&f.name, "name", service.DefaultName, "`NAME` of the service, for several connectors on one machine")
}

// serviceOf returns the flags that lead another command to the same service.
func serviceOf(p service.Plan) (flags string) {
	if p.User {
		flags = " --user"
	}
	if p.Name != service.DefaultName {
		flags += " --name " + p.Name
	}
	return flags
}

// explainManager adds what helps most often.
func explainManager(what string, err error, user bool) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: %w; run it with sudo (on Windows: as administrator), or with --user", what, err)
	case user && runtime.GOOS == "linux":
		return fmt.Errorf("%s: %w; a service of a user needs that user's own session (not su or sudo): log in as that user", what, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// findService returns the service that is installed: this user's, or else the
// machine's.
func findService(sys system, f serviceFlags) (service.Plan, service.Manager, service.State, error) {
	plan := basePlan(sys, f)
	if err := service.CheckName(plan.Name); err != nil {
		return plan, nil, "", fmt.Errorf("--name: %w", err)
	}
	for {
		manager, err := sys.services(plan)
		if err != nil {
			return plan, nil, "", &runtimeError{err}
		}
		state, err := manager.State()
		switch {
		case state == service.NotInstalled && plan.User && !f.user:
			plan.User = false // maybe the machine has one
			continue
		case err != nil:
			return plan, nil, "", &runtimeError{err}
		case state == service.NotInstalled:
			return plan, nil, "", &runtimeError{fmt.Errorf("the service %s is not installed; install it with `connector service install%s`", plan.Name, serviceOf(service.Plan{Name: f.name, User: f.user}))}
		}
		return plan, manager, state, nil
	}
}

func serviceUninstall(sys system) *cobra.Command {
	var f serviceFlags
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service, and remove it",
		Long: `Stops the service, whose running requests may finish, and removes it. The
configuration stays.

Exit codes: 0 done, 1 failed, or there is no service.`,
		Example: `  sudo connector service uninstall
  connector service uninstall --user`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			plan, manager, state, err := findService(sys, f)
			if err != nil {
				return err
			}
			if !plan.User && !sys.root && runtime.GOOS != "windows" {
				return &runtimeError{errors.New("the service is one of the machine; run: sudo connector service uninstall" + serviceOf(plan))}
			}
			if state == service.Running {
				if err := manager.Stop(); err != nil {
					return &runtimeError{explainManager("stopping the service", err, plan.User)}
				}
			}
			if err := manager.Uninstall(); err != nil {
				return &runtimeError{explainManager("removing the service", err, plan.User)}
			}
			fmt.Fprintf(sys.stdout, "Removed the service %s. Its configuration is still there.\n", plan.Name)
			return nil
		},
	}
	f.flags(command, thisUsers)
	return command
}

func serviceStatus(sys system) *cobra.Command {
	var f serviceFlags
	command := &cobra.Command{
		Use:   "status",
		Short: "Show whether the service runs, and what it is doing",
		Long: `Shows what the machine knows of the service, and then what the connector
reports itself, as ` + "`connector status`" + ` does.

Exit codes: 0 the service runs, 1 it does not, or there is none.`,
		Example: `  connector service status`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			plan, manager, state, err := findService(sys, f)
			if err != nil {
				return err
			}
			whose := "of the machine"
			if plan.User {
				whose = "of this user"
			}
			fmt.Fprintf(sys.stdout, "service    %s, %s (%s)\n", state, whose, manager.Platform())
			if state != service.Running {
				return &runtimeError{fmt.Errorf("the service is %s; see `connector service logs%s`", state, serviceOf(plan))}
			}
			socket := ""
			if !plan.User {
				socket = serviceSocket(plan.Name)
			}
			if socket == "" && f.config == "" && plan.Name != service.DefaultName {
				fmt.Fprintln(sys.stdout, "connector  to see what it does, name its configuration with --config FILE")
				return nil
			}
			r, _, err := findConnector(command.Context(), sys, f.config, socket)
			if err != nil {
				fmt.Fprintln(sys.stdout, "connector  "+err.Error())
				return nil
			}
			writeReport(sys.stdout, r, time.Now())
			return nil
		},
	}
	f.flags(command, thisUsers)
	command.Flags().StringVarP(&f.config, "config", "c", "", "configuration `FILE` of a user's service (default: what the command pair wrote)")
	return command
}

func serviceLogs(sys system) *cobra.Command {
	var f serviceFlags
	command := &cobra.Command{
		Use:   "logs [--follow]",
		Short: "Show the log of the service",
		Long: `Shows the last lines of the service's log, from where the machine keeps it.

Exit codes: 0 done, 1 failed, or there is no service.`,
		Example: `  connector service logs --lines 200
  connector service logs --follow`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			plan, _, _, err := findService(sys, f)
			if err != nil {
				return err
			}
			return showLogs(command.Context(), sys, plan.LogCommand(f.lines, f.follow))
		},
	}
	flags := command.Flags()
	f.flags(command, thisUsers)
	flags.IntVarP(&f.lines, "lines", "n", 100, "`NUMBER` of lines")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with the lines that come")
	return command
}

// showLogs runs the machine's own command, until a signal.
func showLogs(ctx context.Context, sys system, command []string) error {
	ctx, stop := sys.signals(ctx)
	defer stop()
	show := exec.CommandContext(ctx, command[0], command[1:]...)
	show.Stdout, show.Stderr = sys.stdout, sys.stderr
	if err := show.Run(); err != nil && ctx.Err() == nil {
		return &runtimeError{fmt.Errorf("showing the log with %s: %w", command[0], err)}
	}
	return nil
}
