// Package command has the parts that the measuring commands share. A command starts itself again for the
// processes that it needs, each in a role. The processes end at a signal, and print their progress on standard
// error.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// A Role runs a process of a command until ctx ends, which SIGINT and SIGTERM end.
type Role func(ctx context.Context, in io.Reader, out io.Writer) error

// A Command is a program with roles.
type Command struct {
	Name  string // as in messages
	Roles map[string]Role
}

// variable names the environment variable that has a process's role.
func (c Command) variable() string { return "POSTERN_" + strings.ToUpper(c.Name) + "_ROLE" }

// InRole returns a command that runs this program in a role; env is added to its environment. If the
// executable cannot be found, its start fails.
func (c Command) InRole(role string, env ...string) *exec.Cmd {
	self, err := os.Executable()
	cmd := exec.Command(self)
	if err != nil {
		cmd.Err = fmt.Errorf("finding this program: %w", err)
	}
	cmd.Env = append(env, c.variable()+"="+role)
	return cmd
}

// RunRole runs the role that the process was started in, and exits; without a role, it returns. The TestMain
// of a command calls it, too: in tests, the test binary starts itself.
func (c Command) RunRole() {
	name := os.Getenv(c.variable())
	if name == "" {
		return
	}
	role := c.Roles[name]
	if role == nil {
		c.exit(fmt.Errorf("%s: %q is no role", c.variable(), name))
	}
	c.exit(untilSignal(func(ctx context.Context) error { return role(ctx, os.Stdin, os.Stdout) }))
}

// Run is the main function of the command: it runs a role, or run with the command's arguments.
func (c Command) Run(run func(ctx context.Context, args []string) error) {
	c.RunRole()
	err := untilSignal(func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
	if errors.Is(err, flag.ErrHelp) {
		err = nil // help was requested and printed
	}
	c.exit(err)
}

func untilSignal(run func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx)
}

// exit ends the process: 0 without an error, else 1.
func (c Command) exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, c.Name+": "+err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// Progress prints the current step on standard error.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05")+" "+format+"\n", args...)
}

// Pause waits, unless ctx ends first; then it returns the cause.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Explain returns the cause of the end of ctx, if it has ended, instead of the error that this has caused.
func Explain(ctx context.Context, err error) error {
	// That a process has ended may be known a moment after its connections are.
	if cause := Pause(ctx, 200*time.Millisecond); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (first seen as: %w)", cause, err)
	}
	return err
}
