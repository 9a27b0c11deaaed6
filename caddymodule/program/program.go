// Package program provides the name of the running program, for the commands in help texts and
// hints. The name is postern in installations from a package, and caddy in builds of Caddy.
package program

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Manual is the URL of the manual's folder.
const Manual = "https://github.com/postern-dev/postern/blob/main/docs"

// Name is the base name with which the program was started. In tests it is caddy, as in
// the manual.
var Name = name(os.Args[0])

// Typed is the command that started the program, for commands to paste into the same
// shell. It may be a path, such as bin/caddy in a clone.
var Typed = typed(os.Args[0])

func name(started string) string {
	base := strings.TrimSuffix(filepath.Base(started), ".exe")
	if strings.HasSuffix(base, ".test") {
		return "caddy"
	}
	return base
}

// plain matches paths that need no quotes in a shell, and no escapes in a format.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./+@-]+$`)

func typed(started string) string {
	if strings.HasSuffix(started, ".test") || !plain.MatchString(started) {
		return name(started)
	}
	return started
}

// commands are the commands in texts, as the manual writes them.
var commands = [...]string{"caddy gateway", "caddy run", "caddy reload", "caddy list-modules"}

// Named returns a text in which commands such as `caddy gateway up` begin with the name
// of this program.
func Named(text string) string { return replaced(text, Name) }

// NamedAsTyped is [Named] with the command that started this program.
func NamedAsTyped(text string) string { return replaced(text, Typed) }

func replaced(text, name string) string {
	for _, command := range commands {
		text = strings.ReplaceAll(text, command, name+strings.TrimPrefix(command, "caddy"))
	}
	return text
}
