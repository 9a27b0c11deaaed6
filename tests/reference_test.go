package tests

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

var update = flag.Bool("update", false, "write docs/cli.md")

const referenceHead = `# Commands

Written by ` + "`go test ./tests -run TestCommandReference -update`" + ` from the help texts of the programs.

`

// docs/cli.md holds the help text of every command of both programs.
func TestCommandReference(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	var text strings.Builder
	text.WriteString(referenceHead)
	describe(t, &text, "##", root, "caddy", "gateway")
	describe(t, &text, "##", root, "connector")
	path := filepath.Join(root, "docs", "cli.md")
	if *update {
		must(t, os.WriteFile(path, []byte(text.String()), 0o644))
		return
	}
	have := read(t, path)
	if string(have) != text.String() {
		t.Error("docs/cli.md differs from the help texts; run: go test ./tests -run TestCommandReference -update")
	}
}

var (
	subcommands = regexp.MustCompile(`(?m)^Available Commands:\n((?:  .*\n)+)`)
	helpFooter  = regexp.MustCompile(`(?s)\n(Use "|The manual: ).*$`)
)

// describe appends the help text of a command, and those of the commands below it.
func describe(t *testing.T, text *strings.Builder, level, root string, command ...string) {
	t.Helper()
	help := exec.Command(filepath.Join(root, "bin", command[0]), append(command[1:], "--help")...)
	help.Env = append(os.Environ(), "HOME=/home/user", "NO_COLOR=1")
	out, err := help.Output()
	if err != nil {
		t.Fatalf("%s --help: %v", strings.Join(command, " "), err)
	}
	text.WriteString(level + " " + strings.Join(command, " ") + "\n\n```text\n" +
		strings.TrimSpace(helpFooter.ReplaceAllString(string(out), "")) + "\n```\n\n")
	m := subcommands.FindStringSubmatch(string(out))
	if m == nil {
		return
	}
	for line := range strings.Lines(m[1]) {
		if name := strings.Fields(line)[0]; name != "help" && name != "completion" {
			describe(t, text, "###", root, append(slices.Clip(command), name)...)
		}
	}
}
