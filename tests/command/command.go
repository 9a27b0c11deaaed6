// Package command is what the commands that measure Postern have in common. They
// start themselves again for the processes that they need, each in a role; they
// end when a signal says so, and say on standard error what they do.
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

// A Role is what a process of a command does, until ctx ends; at SIGINT and
// SIGTERM it does.
type Role func(ctx context.Context, in io.Reader, out io.Writer) error

// A Command is a program with roles.
type Command struct {
	Name  string // as in messages
	Roles map[string]Role
}

// variable names the environment variable that has a process's role.
func (c Command) variable() string { return "POSTERN_" + strings.ToUpper(c.Name) + "_ROLE" }

// InRole is this program in a role; env is all else that it has of an
// environment. An executable that cannot be found is an error of its start.
func (c Command) InRole(role string, env ...string) *exec.Cmd {
	self, err := os.Executable()
	cmd := exec.Command(self)
	if err != nil {
		cmd.Err = fmt.Errorf("finding this program: %w", err)
	}
	cmd.Env = append(env, c.variable()+"="+role)
	return cmd
}

// RunRole does what the process is there for if it was started in a role, and
// then ends it; else it returns. It is also for the TestMain of a command, whose
// test binary is what starts itself then.
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

// Run is the command's main: a role, or run with what follows the command's name.
func (c Command) Run(run func(ctx context.Context, args []string) error) {
	c.RunRole()
	err := untilSignal(func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
	if errors.Is(err, flag.ErrHelp) {
		err = nil // it was asked for, and is there
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

// Progress says on standard error what is being done.
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

// Explain returns why ctx was ended, if it was, instead of what failed because
// of that.
func Explain(ctx context.Context, err error) error {
	// That a process has ended may be known a moment after its connections are.
	if cause := Pause(ctx, 200*time.Millisecond); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (first seen as: %w)", cause, err)
	}
	return err
}
