package tests

import (
	"flag"
	"fmt"
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

const referenceHead = `<!-- Written by "go test ./tests -run TestCommandReference -update" from the help texts. -->

# Commands

The commands of both programs, as ` + "`--help`" + ` describes them. Flags that many commands have stand once, at the
head of each program; ` + "`--help`" + ` of a command lists all that it takes.

`

// docs/cli.md holds the help text of every command of both programs, and flags of many commands once.
func TestCommandReference(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	text := referenceHead + describe(t, root, "caddy", "gateway") + describe(t, root, "connector")
	path := filepath.Join(root, "docs", "cli.md")
	if *update {
		must(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	if n := strings.Count(text, "\n"); n > 1750 {
		t.Errorf("docs/cli.md has %d lines, more than 1750", n)
	}
	if have := read(t, path); string(have) != text {
		t.Error("docs/cli.md differs from the help texts; run: go test ./tests -run TestCommandReference -update")
	}
}

var (
	subcommands = regexp.MustCompile(`(?m)^Available Commands:\n((?:  .*\n)+)`)
	helpFooter  = regexp.MustCompile(`(?s)\n(Use "|The manual: ).*$`)
	helpFlags   = regexp.MustCompile(`(?m)^Flags:\n((?:  .*\n)+)`)
	helpUsage   = regexp.MustCompile(`(?m)^Usage:\n((?:  .*\n)+)`)
	helpSpaces  = regexp.MustCompile(`(\S)  +`)
	generalFrom = 3 // commands that have a flag: then it stands once
)

// page is the help text of a command.
type page struct{ name, text string }

// describe returns the help texts of a command, and of the commands below it.
func describe(t *testing.T, root string, command ...string) string {
	t.Helper()
	pages := helpOf(t, root, command...)
	count, general := map[string]int{}, []string{}
	for _, p := range pages {
		for line := range strings.Lines(submatch(helpFlags, p.text)) {
			flag := generalFlag(line)
			if count[flag]++; count[flag] == generalFrom {
				general = append(general, flag)
			}
		}
	}
	slices.SortFunc(general, func(a, b string) int {
		return strings.Compare(a[strings.Index(a, "--"):], b[strings.Index(b, "--"):])
	})
	var text strings.Builder
	for i, p := range pages {
		level := "###"
		if i == 0 {
			level = "##"
		}
		own := ""
		for line := range strings.Lines(submatch(helpFlags, p.text)) {
			if !slices.Contains(general, generalFlag(line)) {
				own += line
			}
		}
		if own != "" {
			own = "Flags:\n" + own
		}
		help := helpFlags.ReplaceAllLiteralString(p.text, own)
		if i > 0 && subcommands.MatchString(help) { // their own texts follow
			help = helpUsage.ReplaceAllString(subcommands.ReplaceAllString(help, ""), "")
		}
		fmt.Fprintf(&text, "%s %s\n\n```text\n%s\n```\n\n", level, p.name, strings.TrimSpace(help))
		if i == 0 {
			text.WriteString("Flags of many commands:\n\n```text\n")
			for _, flag := range general {
				name, meaning, _ := strings.Cut(flag, "  ")
				fmt.Fprintf(&text, "  %-36s %s\n", name, meaning)
			}
			text.WriteString("```\n\n")
		}
	}
	return text.String()
}

// generalFlag returns a line about a flag without what differs between commands.
func generalFlag(line string) string {
	line = helpSpaces.ReplaceAllString(strings.TrimSpace(line), "$1  ")
	if strings.HasPrefix(line, "-h, --help  ") {
		return "-h, --help  Help for the command"
	}
	return line
}

func submatch(expression *regexp.Regexp, text string) string {
	if m := expression.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// helpOf returns the help texts of a command and of those below it.
func helpOf(t *testing.T, root string, command ...string) []page {
	t.Helper()
	help := exec.Command(filepath.Join(root, "bin", command[0]), append(command[1:], "--help")...)
	help.Env = append(os.Environ(), "HOME=/home/user", "NO_COLOR=1")
	out, err := help.Output()
	if err != nil {
		t.Fatalf("%s --help: %v", strings.Join(command, " "), err)
	}
	pages := []page{{strings.Join(command, " "), helpFooter.ReplaceAllString(string(out), "")}}
	for line := range strings.Lines(submatch(subcommands, string(out))) {
		if name := strings.Fields(line)[0]; name != "help" && name != "completion" {
			pages = append(pages, helpOf(t, root, append(slices.Clip(command), name)...)...)
		}
	}
	return pages
}
