// Package cli is `caddy gateway …`: a table of commands. Most of them perform an operation of
// the management API of the running gateway. Their flags, requests and columns come from the
// tags of the operation's types.
package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/tty"
)

// Register adds `caddy gateway` to Caddy's command line, and gives Caddy's commands the name of
// this program.
func Register(host up.Host) {
	caddy.CustomBinaryName = cmp.Or(caddy.CustomBinaryName, program.Name)
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "gateway",
		Short: "Manages the model gateway",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.SetHelpTemplate(cmd.HelpTemplate() + "\nThe manual: " + program.Manual + "\n")
			commands(host).build(cmd, environment{
				now: time.Now, zone: time.Local, askPassword: terminalPassword, confirm: terminalConfirm,
				size: tty.Size, poll: 2 * time.Second,
			})
		},
	})
}

// The exit codes of the commands.
const (
	exitFailed = 1 // the operation failed
	exitUsage  = 2 // the command line is wrong
)

// unconfirmedError is the error of a command whose change is made, but not confirmed by all
// edges.
type unconfirmedError struct{ manage.UnconfirmedAnswer }

func (e unconfirmedError) Error() string { return e.Message }
func (e unconfirmedError) Unwrap() error { return store.ErrUnconfirmed }

// environment contains the dependencies of commands on the clock and the terminal.
type environment struct {
	now  func() time.Time
	zone *time.Location
	// askPassword asks for a password on the terminal.
	askPassword func(cmd *cobra.Command, prompt string) (string, error)
	// confirm asks a question, and returns an error unless the answer is yes.
	confirm func(cmd *cobra.Command, question string) error
	size    func(io.Writer) (width, height int) // of a terminal, 0 for other writers
	poll    time.Duration                       // between two requests of --follow
}

// command is a group of commands, or a command that performs an operation of the management API,
// or a command with a function of its own.
type command struct {
	use, short, long, example string

	aliases  []string
	commands []command // of a group

	operation string                            // such as "POST /keys"; short defaults to its help
	argument  string                            // the field that the argument sets, unless that is in the path
	prepare   func(*invocation, *request) error // completes the request; may be nil
	edit      func(*invocation, any) error      // changes the answer before it is printed; may be nil
	print     func(in *invocation, answer any)  // prints the answer as text; --json prints the answer itself
	flags     func(*pflag.FlagSet)              // adds flags in addition to those of the operation; may be nil
	run       func(*invocation) error           // instead of the operation
	local     bool                              // it needs no running gateway
}

// commands is the table of `caddy gateway`.
func commands(host up.Host) *command {
	return &command{
		use: "gateway",
		long: `Manages the model gateway: API keys, connectors, deployments, the users and
management tokens of its console, and the edges of a cluster.

All commands but "up", "restore" and "backup --offline" connect to the admin endpoint
of the running Caddy. Set it with --address, or take it from a file with --config. The
default is $CADDY_ADMIN, or the socket of an installed package or of "up"; if neither
answers, localhost:2019. On Linux that port must belong to root, to the user of a
package, or to you.

Lists leave columns out on a narrow terminal. Pipes and --json have all.`,
		example: `  caddy gateway up
  caddy gateway setup-link
  caddy gateway pairing start
  caddy gateway pairing approve PAIR-7K3M-Q9TX --name workstation
  caddy gateway deployment set qwen3:8b --connector workstation
  caddy gateway key create --name laptop --scope "qwen*"`,
		commands: []command{
			keyCommands, connectorCommands, deploymentCommands, pairingCommands, userCommands, groupCommands,
			tokenCommands, setupLinkCommand, accountCommands, statusCommand, activityCommand, usageCommand, auditCommand,
			upCommand(host), backupCommand(host), restoreCommand(host), identityCommands, edgeCommands,
			webhookCommands,
		},
	}
}

// build sets up a cobra command from the table.
func (c *command) build(cmd *cobra.Command, env environment) {
	operation := manage.FindOperation(c.operation)
	cmd.Use, cmd.Short, cmd.Aliases = c.use, cmp.Or(c.short, operation.Help, cmd.Short), c.aliases
	cmd.Long, cmd.Example = program.Named(c.long), program.Named(c.example)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fail(cmd, up.Usagef("%w; see `%s --help`", err, cmd.CommandPath()))
	})
	if c.commands != nil {
		for _, sub := range c.commands {
			child := new(cobra.Command)
			sub.build(child, env)
			cmd.AddCommand(child)
		}
		// Otherwise a mistyped command would be reported as an unknown flag.
		cmd.DisableFlagParsing = true
		cmd.RunE = guarded(group)
		return
	}
	cmd.DisableFlagsInUseLine = true
	for _, f := range c.fields() {
		if f.Flag != "" {
			f.addFlag(cmd.Flags())
		}
	}
	if c.flags != nil {
		c.flags(cmd.Flags())
	}
	if c.operation != "" && operation.About == manage.InAccount {
		cmd.Flags().String("account", "", `The account to work in (default "default")`)
	}
	if !c.local {
		cmd.Flags().Bool("json", false, "Print JSON instead of text")
		tty.Flag(cmd.Flags())
		cmd.Flags().String("address", "", "The address of Caddy's admin endpoint")
		cmd.Flags().StringP("config", "c", "", "Configuration file with the admin endpoint")
		cmd.Flags().StringP("adapter", "a", "", "Name of the adapter for --config")
	}
	c.complete(cmd, env)
	name := c.argumentName()
	cmd.Args = guarded(func(cmd *cobra.Command, args []string) error { return checkArgument(cmd, name, args) })
	cmd.RunE = guarded(func(cmd *cobra.Command, args []string) error {
		in := &invocation{Command: cmd, command: c, env: env, arg: strings.Join(args, ""), widths: map[string]int{}}
		if c.run != nil {
			return c.run(in)
		}
		return in.perform()
	})
}

// argumentName returns the name of the command's argument, in brackets if it may be left out, "" if it has none.
func (c *command) argumentName() string {
	if words := strings.Fields(c.use); len(words) > 1 && !strings.HasPrefix(strings.TrimPrefix(words[1], "["), "-") {
		return words[1]
	}
	return ""
}

// checkArgument checks the number of arguments: one if name is set, or none if that is in brackets.
func checkArgument(cmd *cobra.Command, name string, args []string) error {
	want := min(len(name), 1)
	switch {
	case len(args) < want && name[0] != '[':
		return up.Usagef("%s is missing; usage: %s", name, cmd.UseLine())
	case len(args) > want:
		return up.Usagef("unexpected argument %q; usage: %s", args[want], cmd.UseLine())
	case len(args) == 1 && args[0] == "":
		return up.Usagef("%s is empty; usage: %s", name, cmd.UseLine())
	}
	return nil
}

// group prints the help of a group of commands. It refuses unknown commands.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
		return cmd.Help()
	}
	kind, help := "command", fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	if cmd.SuggestionsMinimumDistance = 2; strings.HasPrefix(args[0], "-") {
		kind = "flag"
	} else if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		help = fmt.Sprintf("did you mean %q?", similar[0])
	}
	return up.Usagef("unknown %s %q for %q; %s", kind, args[0], cmd.CommandPath(), help)
}

// guarded returns do with its errors printed by [fail].
func guarded(do func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := do(cmd, args); err != nil {
			return fail(cmd, err)
		}
		return nil
	}
}

// fail prints err. It returns an error for which Caddy's main function exits with the right
// code and prints nothing. Exit codes above 1 need Caddy's wrapper.
func fail(cmd *cobra.Command, err error) error {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	prefix := "Error: "
	if _, ok := errors.AsType[unconfirmedError](err); ok {
		prefix = ""
	}
	fmt.Fprintln(cmd.ErrOrStderr(), prefix+text.Lines(err.Error()))
	if _, ok := errors.AsType[up.UsageError](err); !ok {
		return err
	}
	code := func(caddycmd.Flags) (int, error) { return exitUsage, nil }
	return caddycmd.WrapCommandFuncForCobra(code)(cmd, nil)
}
