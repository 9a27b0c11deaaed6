// Package program has the name of the running program, for the commands in helps and
// hints: packages call it postern, Caddy's own builds caddy.
package program

import (
	"os"
	"path/filepath"
	"strings"
)

// Name is the base name with which the program was started. In tests it is caddy, as in
// the documents.
var Name = name(os.Args[0])

func name(started string) string {
	base := strings.TrimSuffix(filepath.Base(started), ".exe")
	if strings.HasSuffix(base, ".test") {
		return "caddy"
	}
	return base
}

// commands are the commands that texts name, as in the documents.
var commands = [...]string{"caddy gateway", "caddy run", "caddy reload", "caddy list-modules"}

// Named returns a text in which commands such as `caddy gateway up` have the name of
// this program.
func Named(text string) string {
	for _, command := range commands {
		text = strings.ReplaceAll(text, command, Name+strings.TrimPrefix(command, "caddy"))
	}
	return text
}
