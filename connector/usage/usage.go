// Package usage suggests corrections of mistyped command lines, in both programs.
package usage

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/connector/text"
)

// Flag returns the error for flags that cannot be parsed. For an unknown flag, it suggests
// a similar one, or the help.
func Flag(command *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if similar := text.Similar(unknown.GetSpecifiedName(), names); similar != "" &&
		unknown.GetSpecifiedShortnames() == "" {
		return fmt.Errorf("%w; did you mean --%s?", err, similar)
	}
	return fmt.Errorf("%w; see `%s --help`", err, command.CommandPath())
}

// Command returns the error for an unknown command of a group, or for a flag in its place. It
// suggests a similar command, or lists all.
func Command(group *cobra.Command, name string) error {
	if strings.HasPrefix(name, "-") {
		return fmt.Errorf("unknown flag: %s; see `%s --help`", name, group.CommandPath())
	}
	var names, known []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
			known = append(append(known, c.Name()), c.Aliases...)
		}
	}
	if similar := text.Similar(name, known); similar != "" {
		return fmt.Errorf("%q is not a command of `%s`; did you mean %q?", name, group.CommandPath(), similar)
	}
	return fmt.Errorf("%q is not a command of `%s`; the commands are: %s", name, group.CommandPath(),
		strings.Join(names, ", "))
}
