package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
)

// TestCommandsHaveOperations: each command performs an operation of the API or has a function. Its
// argument is the record in the path, or a field of the request.
func TestCommandsHaveOperations(t *testing.T) {
	var check func(command)
	check = func(c command) {
		for _, sub := range c.commands {
			check(sub)
		}
		o := manage.FindOperation(c.operation)
		if (o.Path == "" || c.print == nil) && c.run == nil && c.commands == nil {
			t.Errorf("%q performs %q, which does not exist, or prints nothing", c.use, c.operation)
		}
		isField := slices.ContainsFunc(c.fields(), func(f field) bool { return f.Name == c.argument && f.Flag == "" })
		inPath := strings.Contains(o.Path, "{")
		if c.argument != "" && !isField || c.run == nil && (isField || inPath) != (c.argumentName() != "") {
			t.Errorf("%q: the argument sets no field of %q", c.use, c.operation)
		}
	}
	check(*commands(up.Host{}))
}

// The helps of a program with another name do not mention the command caddy, nor paths
// of Caddy's package.
func TestHelpNamesTheProgram(t *testing.T) {
	defer func(before string) { program.Name = before }(program.Name)
	program.Name = "postern"
	gateway := new(cobra.Command)
	commands(up.Host{}).build(gateway, environment{})
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
