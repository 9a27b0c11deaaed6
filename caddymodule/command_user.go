package caddymodule

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// userCommand builds `caddy gateway user`.
func userCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Adds, lists and removes users of the console",
	}
	cmd.AddCommand(userAddCommand(env), userListCommand(env), userRemoveCommand(), userRecoveryCommand(env))
	commandGroup(cmd)
	return cmd
}

func userAddCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME [--password-stdin]",
		Short: "Adds a user of the console",
		Long: `Adds a user of the console. The password is asked for without an echo, or read
from the standard input with --password-stdin; a command line would show it to
others. It has 10 characters or more.`,
		Example: `  caddy gateway user add anna
  caddy gateway user add anna --account research --password-stdin < password.txt`,
	}
	takes(cmd, "NAME")
	cmd.Flags().Bool("password-stdin", false, "Read the password from the standard input")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the name is empty; usage: %s", cmd.UseLine())
		}
		password, err := newPassword(cmd, env)
		if err != nil {
			return err
		}
		request := accountOnly(cmd)
		request["name"], request["password"] = args[0], password
		var u manage.User
		if done, err := perform(cmd, http.MethodPost, "/users", request, &u); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "User %q (%s) is added to account %q.\n", printable(u.Name), u.ID, printable(u.Account))
		return nil
	})
	return cmd
}

// maxPasswordLine bounds what is read from the standard input, in bytes.
const maxPasswordLine = 4 << 10

// newPassword reads the password of a new user.
func newPassword(cmd *cobra.Command, env commandEnv) (string, error) {
	if piped, _ := cmd.Flags().GetBool("password-stdin"); piped {
		line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), maxPasswordLine)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reading the password: %w", err)
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return "", usagef("the standard input holds no password")
		}
		return line, nil
	}
	password, err := env.askPassword(cmd, "Password: ")
	if err != nil {
		return "", err
	}
	again, err := env.askPassword(cmd, "Once more: ")
	if err != nil {
		return "", err
	}
	if password != again {
		return "", errors.New("the two passwords differ; run the command again")
	}
	return password, nil
}

// terminalPassword asks for a password on the terminal, without showing it.
func terminalPassword(cmd *cobra.Command, prompt string) (string, error) {
	fd := int(os.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return "", usagef("there is no terminal to ask for the password; use --password-stdin")
	}
	restore, err := restoreAtInterrupt(fd)
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	defer restore()
	fmt.Fprint(cmd.ErrOrStderr(), prompt)
	password, err := term.ReadPassword(fd)
	fmt.Fprintln(cmd.ErrOrStderr())
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	return string(password), nil
}

// restoreAtInterrupt has Ctrl-C give the terminal its echo back before it ends
// the program, until stop is called.
func restoreAtInterrupt(fd int) (stop func(), err error) {
	state, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	stopped := make(chan struct{})
	go func() {
		select {
		case <-interrupted:
			_ = term.Restore(fd, state) // there is no other way to do it
			os.Exit(exitFailed)
		case <-stopped:
		}
	}()
	return func() {
		signal.Stop(interrupted)
		close(stopped)
	}, nil
}

func userListCommand(env commandEnv) *cobra.Command {
	return list[manage.User]{
		kind: "user", short: "Lists users of the console",
		empty:  "`caddy gateway setup-link` makes a link for the first, `caddy gateway user add NAME` adds one.",
		header: []string{"ID", "NAME", "ACCOUNT", "PASSKEYS", "CREATED"},
		row: func(u manage.User) []string {
			return []string{u.ID, u.Name, u.Account, strconv.Itoa(u.Passkeys), env.date(u.CreatedAt)}
		},
	}.command()
}

func userRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID_OR_NAME",
		Short: "Removes a user of the console",
		Long: `Removes a user, and with it the user's sessions, passkeys, management tokens
and invitations. API keys and connectors belong to the account, and stay.`,
		Example: `  caddy gateway user remove anna`,
	}
	takes(cmd, "ID_OR_NAME")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		var u manage.User
		if done, err := deleteItem(cmd, "/users", args[0], &u); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "User %q (%s) is removed.\n", printable(u.Name), u.ID)
		return nil
	})
	return cmd
}

func userRecoveryCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recovery-link ID_OR_NAME",
		Short: "Prints a link with which a user sets a new password",
		Long: `Prints a link with which a user sets a new password, this once. It works for 15
minutes, and ends the user's sessions when it is used. Its page also offers to
remove the user's passkeys, and to revoke management tokens and invitations.`,
		Example: `  caddy gateway user recovery-link anna`,
	}
	takes(cmd, "ID_OR_NAME")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the name is empty; usage: %s", cmd.UseLine())
		}
		var link manage.Link
		if done, err := perform(cmd, http.MethodPost, itemPath("/users", args[0], "")+"/recovery-link", accountOnly(cmd), &link); done || err != nil {
			return err
		}
		env.printLink(cmd.OutOrStdout(), "Send this link to the user. It sets a new password, works once, and runs out", link)
		return nil
	})
	return cmd
}

// setupLinkCommand builds `caddy gateway setup-link`.
func setupLinkCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup-link",
		Short: "Prints a link that makes the first user of the console",
		Long: `Prints a link that makes the first user of the console, this once. It works for
15 minutes, and only while there is no user; a new one ends the one before.`,
		Example: `  caddy gateway setup-link`,
	}
	takes(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		var link manage.Link
		if done, err := perform(cmd, http.MethodPost, "/setup-link", map[string]string{}, &link); done || err != nil {
			return err
		}
		env.printLink(cmd.OutOrStdout(), "Open this link to become the first user. It works once, and runs out", link)
		return nil
	})
	return cmd
}

func (e commandEnv) printLink(w io.Writer, what string, link manage.Link) {
	fmt.Fprintf(w, "%s %s:\n\n  %s\n\n", what, e.in(link.ExpiresAt), link.URL)
}
