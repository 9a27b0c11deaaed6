package cli

import (
	"regexp"
	"testing"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/program"
)

// The helps of a program with another name do not mention the command caddy, nor paths
// of Caddy's package.
func TestHelpNamesTheProgram(t *testing.T) {
	defer func(before string) { program.Name = before }(program.Name)
	program.Name = "postern"
	gateway := new(cobra.Command)
	build(gateway, commands(up.Host{}), environment{})
	named, seen := regexp.MustCompile(`\bcaddy\b`), 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		seen++
		for _, text := range []string{cmd.Short, cmd.Long, cmd.Example, cmd.Flags().FlagUsages()} {
			if named.MatchString(text) {
				t.Errorf("the help of %q mentions caddy:\n%s", cmd.CommandPath(), text)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	if check(gateway); seen < 40 {
		t.Errorf("there are %d commands", seen)
	}
}
