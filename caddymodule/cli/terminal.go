package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/postern-dev/postern/caddymodule/cli/up"
)

// errDeclined is the error of a question that the user answered with no.
var errDeclined = errors.New("not done")

// errNoTerminal is the error of a question without a terminal.
var errNoTerminal = errors.New("no terminal to ask on; add --yes")

// readLine reads a line of the standard input, without the end of the line.
func readLine(cmd *cobra.Command) (string, error) {
	const limit = 4 << 10 // bytes
	line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), limit)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// confirmationFlag adds the flag --yes, which [invocation.confirm] reads.
func confirmationFlag(help string) func(*pflag.FlagSet) {
	return func(f *pflag.FlagSet) { f.BoolP("yes", "y", false, help) }
}

// confirm asks a question, unless --yes is given. Any answer but yes is an error.
func (in *invocation) confirm(question string) error {
	if in.is("yes") {
		return nil
	}
	return in.env.confirm(in.Command, question)
}

// terminalConfirm asks a question on the terminal. Any answer but yes is an error.
func terminalConfirm(cmd *cobra.Command, question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return up.UsageError{Err: errNoTerminal}
	}
	return readConfirmation(cmd, question)
}

func readConfirmation(cmd *cobra.Command, question string) error {
	fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] ")
	answer, err := readLine(cmd)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}

// newPassword reads the password of a new user.
func newPassword(in *invocation) (string, error) {
	if in.is("password-stdin") {
		line, err := readLine(in.Command)
		switch {
		case err != nil:
			return "", fmt.Errorf("reading the password: %w", err)
		case line == "":
			return "", up.Usagef("the standard input holds no password")
		}
		return line, nil
	}
	password, err := in.env.askPassword(in.Command, "Password: ")
	if err != nil {
		return "", err
	}
	again, err := in.env.askPassword(in.Command, "Once more: ")
	if err == nil && password != again {
		err = errors.New("the two passwords differ; run the command again")
	}
	return password, err
}

// terminalPassword asks for a password on the terminal, without showing it.
func terminalPassword(cmd *cobra.Command, prompt string) (string, error) {
	fd := int(os.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return "", up.Usagef("no terminal to ask for the password; use --password-stdin")
	}
	state, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	// Ctrl-C ends the program: restore the echo of the terminal first.
	interrupted, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	disarm := context.AfterFunc(interrupted, func() {
		_ = term.Restore(fd, state) // the program ends in any case
		os.Exit(exitFailed)
	})
	defer func() {
		disarm()
		stop()
	}()
	fmt.Fprint(cmd.ErrOrStderr(), prompt)
	password, err := term.ReadPassword(fd)
	fmt.Fprintln(cmd.ErrOrStderr())
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	return string(password), nil
}
