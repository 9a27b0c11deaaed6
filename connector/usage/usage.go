// Package usage corrects mistyped command lines. It is the same for both programs.
package usage

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/connector/text"
)

// Flag returns an error of parsing the flags of a command. The error of an unknown flag
// suggests a similar one, or the help.
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

// Command returns the error of an unknown command of a group.
func Command(group *cobra.Command, name string) error {
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
