package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "gateway",
		Short: "Manages the model gateway",
		CobraFunc: func(cmd *cobra.Command) {
			gatewayCommand(cmd, commandEnv{now: time.Now, zone: time.Local, askPassword: terminalPassword, confirm: terminalConfirm})
		},
	})
}

// The exit codes of the commands.
const (
	exitFailed = 1 // the operation failed
	exitUsage  = 2 // the command line is wrong
)

// gatewayCommand builds `caddy gateway` and everything below it.
func gatewayCommand(root *cobra.Command, env commandEnv) {
	root.Use = "gateway"
	root.Long = `Manages the model gateway: API keys, connectors, deployments, and the users and
management tokens of its console.

All commands but "up" talk to the running Caddy through its admin endpoint.
Name it with --address, or let --config find it; without either it is the
default one (localhost:2019, or $CADDY_ADMIN).`
	root.Example = `  caddy gateway up
  caddy gateway setup-link
  caddy gateway pairing start
  caddy gateway pairing approve PAIR-7K3M-Q9TX --name workstation
  caddy gateway deployment set qwen3:8b --connector workstation
  caddy gateway key create --name laptop --scope "qwen*"`
	root.AddCommand(
		keyCommand(env),
		connectorCommand(env),
		deploymentCommand(env),
		pairingCommand(env),
		userCommand(env),
		tokenCommand(env),
		setupLinkCommand(env),
		accountCommand(env),
		statusCommand(),
		upCommand(),
	)
	commandGroup(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return failCommand(cmd, usageError{err}) })
}

// commandEnv is what the output of commands depends on besides their input.
type commandEnv struct {
	now  func() time.Time
	zone *time.Location
	// askPassword asks a person for a password.
	askPassword func(cmd *cobra.Command, prompt string) (string, error)
	// confirm asks a person, and returns an error unless the answer is yes.
	confirm func(cmd *cobra.Command, question string) error
}

// usageError marks an error in the command line itself.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// commandGroup makes cmd a command that only holds others: it prints its help,
// and refuses words that are none of its commands. It looks at the raw words:
// otherwise a mistyped command would be reported as the unknown flag after it.
func commandGroup(cmd *cobra.Command) {
	cmd.DisableFlagParsing = true
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
			return cmd.Help()
		}
		list := make([]string, 0, len(cmd.Commands()))
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				list = append(list, c.Name())
			}
		}
		return usagef("%q is not a command of `%s`; there are: %s", args[0], cmd.CommandPath(), strings.Join(list, ", "))
	})
}

// takes makes cmd take exactly the named arguments.
func takes(cmd *cobra.Command, names ...string) {
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return failCommand(cmd, usagef("%s is missing; usage: %s", names[len(args)], cmd.UseLine()))
		case len(args) > len(names):
			return failCommand(cmd, usagef("%q is one word too many; usage: %s", args[len(names)], cmd.UseLine()))
		}
		return nil
	}
}

// runs sets what cmd does.
func runs(cmd *cobra.Command, do func(cmd *cobra.Command, args []string) error) {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := do(cmd, args); err != nil {
			return failCommand(cmd, err)
		}
		return nil
	}
}

// failCommand prints err for a person, and returns what makes Caddy's main function
// exit with the right code and without printing it again. Exit codes above 1
// only come about through Caddy's own wrapper.
func failCommand(cmd *cobra.Command, err error) error {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	fmt.Fprintln(cmd.ErrOrStderr(), "Error: "+printableLines(err.Error()))
	var usage usageError
	if !errors.As(err, &usage) {
		return err
	}
	code := func(caddycmd.Flags) (int, error) { return exitUsage, nil }
	return caddycmd.WrapCommandFuncForCobra(code)(cmd, nil)
}

// adminFlags adds the flags of every command that talks to a running gateway.
func adminFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "Print JSON instead of text")
	cmd.Flags().String("address", "", "The address of Caddy's admin endpoint")
	cmd.Flags().StringP("config", "c", "", "Configuration file to find the admin endpoint in")
	cmd.Flags().StringP("adapter", "a", "", "Name of the adapter for --config")
}

// accountFlag adds the flag of every command that works inside an account.
func accountFlag(cmd *cobra.Command) {
	cmd.Flags().String("account", "", `The account to work in (default "default")`)
}

// flagValue returns the value of a string flag that cmd has.
func flagValue(cmd *cobra.Command, name string) string {
	value, _ := cmd.Flags().GetString(name)
	return value
}

// needs returns the value of a string flag that must be given.
func needs(cmd *cobra.Command, name, example string) (string, error) {
	value := flagValue(cmd, name)
	if value == "" {
		return "", usagef("--%s is missing; for example: %s", name, example)
	}
	return value, nil
}

// wantsJSON tells whether the caller asked for JSON.
func wantsJSON(cmd *cobra.Command) bool {
	value, _ := cmd.Flags().GetBool("json")
	return value
}

// printJSON prints v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// printTable prints rows under the first one in aligned columns.
func printTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
			if cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// printable replaces what could move the cursor or split a row: some of the
// text comes from connectors.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// ago tells how long t is past, in one unit; "never" for no time.
func (e commandEnv) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "never"
	}
	d := e.now().Sub(*t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// in tells how long t is ahead, in one unit, rounded up.
func (e commandEnv) in(t time.Time) string {
	d := t.Sub(e.now())
	up := func(unit time.Duration) int { return int((d + unit - 1) / unit) }
	switch {
	case d <= 0:
		return "now"
	case d <= time.Minute:
		return fmt.Sprintf("in %ds", up(time.Second))
	case d <= time.Hour:
		return fmt.Sprintf("in %dm", up(time.Minute))
	case d <= 48*time.Hour:
		return fmt.Sprintf("in %dh", up(time.Hour))
	}
	return fmt.Sprintf("in %dd", up(24*time.Hour))
}

// date prints the local day and minute of t.
func (e commandEnv) date(t time.Time) string {
	return t.In(e.zone).Format("2006-01-02 15:04")
}
