// Command connector publishes model servers through a Postern gateway. It dials out to
// the gateway and needs no open port.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/service"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/tty"
	"github.com/postern-dev/postern/connector/version"
)

// Exit codes.
const (
	exitOK      = 0
	exitRuntime = 1
	exitUsage   = 2 // invalid flags or configuration
	exitRefused = 3 // the gateway did not pair this machine
	exitPaired  = 4 // this machine is paired already
	exitMissing = 5 // the service is not installed
	// exitFatal is EX_CONFIG of sysexits.h, for service managers: the gateway rejects
	// this connector, or is not the expected gateway.
	exitFatal = 78
)

func main() {
	useOneProcessor()
	// Like Caddy, the program limits itself to nine tenths of the memory, unless GOMEMLIMIT is set or
	// the memory is unknown.
	_, _ = memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	enableSequences(os.Stdout)
	os.Exit(start(system{
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		getenv: os.Getenv,
		signals: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		},
		hangups: func() (<-chan os.Signal, func()) {
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGHUP)
			return c, func() { signal.Stop(c) }
		},
		services:   service.New,
		root:       os.Geteuid() == 0 || runtime.GOOS == "windows",
		executable: executable(),
		config:     config.SystemPath(),
	}))
}

// executable returns this program's path, or "" if it is unknown.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// start runs the program, as a Windows service if Windows started it as one.
func start(sys system) int {
	if !service.Managed() {
		return run(context.Background(), os.Args[1:], sys)
	}
	name := service.NameIn(os.Args)
	return service.Run(name, func(ctx context.Context) int {
		if log, err := service.OpenLog(name); err == nil {
			sys.stdout, sys.stderr = log, log
		}
		sys.getenv = func(variable string) string {
			if variable == "RUNTIME_DIRECTORY" { // as systemd does
				return service.Folder(name)
			}
			return os.Getenv(variable)
		}
		sys.signals = func(context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(ctx) }
		return run(context.Background(), os.Args[1:], sys)
	})
}

// system is the program's environment. Tests replace it.
type system struct {
	stdin          io.Reader // a terminal, or nothing is asked
	stdout, stderr io.Writer
	getenv         func(string) string
	// signals returns a context that ends with the first signal to stop. After a call of its
	// cancel function, the next signal kills the process.
	signals func(context.Context) (context.Context, context.CancelFunc)
	// hangups returns a channel of signals to reload. It may be nil.
	hangups func() (<-chan os.Signal, func())
	// services returns the system's service manager.
	services func(service.Plan) (service.Manager, error)
	// root is set if the user can install system services.
	root       bool
	executable string // path of this program
	config     string // path of this machine's configuration; "": none
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, sys system) int {
	root := rootCommand(sys)
	root.SetArgs(args)
	root.SetOut(sys.stdout)
	root.SetErr(sys.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(sys.stderr, "Error:", text.Lines(err.Error()))
	var exit *exitError
	switch {
	case errors.As(err, new(*agent.FatalError)):
		return exitFatal
	case errors.As(err, &exit):
		return exit.code
	default:
		return exitUsage
	}
}

// exitError is an error with an exit code. Other errors exit with exitUsage.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

// failed wraps an error that may not occur again with the same command line and
// configuration.
func failed(err error) error { return &exitError{exitRuntime, err} }

// seeHelp adds the command that lists flags and commands to an error.
func seeHelp(command *cobra.Command, err error) error {
	return fmt.Errorf("%w; see `%s --help`", err, command.CommandPath())
}

func rootCommand(sys system) *cobra.Command {
	root := &cobra.Command{
		Use:   "connector",
		Short: "Publish your model server through a Postern gateway",
		Long: `The connector runs next to a model server (Ollama, llama-server, vLLM, …), dials
out to a Postern gateway, and forwards the gateway's requests to the model server.
It needs no open port.

Exit codes: 0 success, 1 failure, 2 invalid flags or configuration, 3 not paired,
4 already paired, 5 no service, 78 rejected by the gateway.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Templates of cobra would link text/template, and with it all methods of all types: two megabytes.
	showVersion := root.Flags().BoolP("version", "v", false, "version for connector")
	root.RunE = func(*cobra.Command, []string) error {
		if !*showVersion {
			return root.Help()
		}
		_, err := fmt.Fprintf(sys.stdout, "connector %s\ncommit %s\n%s %s\n", version.Number(), version.Commit(),
			runtime.Version(), version.Platform())
		return err
	}
	root.SetFlagErrorFunc(seeHelp)
	tty.Flag(root.PersistentFlags())
	root.AddCommand(pairCommand(sys), runCommand(sys), statusCommand(sys), waitCommand(sys), reloadCommand(sys),
		doctorCommand(sys), serviceCommand(sys), useCommand(sys))
	return root
}
