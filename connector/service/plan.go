// Package service makes a connector a service of the machine or of its user:
// with systemd, launchd, or the services of Windows, and with what else
// github.com/kardianos/service knows.
//
//	plan.go      what the service is to be, checked
//	systemd.go   its unit, hardened
//	launchd.go   its property list
//	manager.go   the service manager
//	run.go       running under that of Windows
//	logs.go      where its log is
package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// DefaultName is the name of a service that was given no other.
const DefaultName = "postern-connector"

const (
	description = "Publishes model servers of this machine's network through a Postern gateway"
)

// Plan says what the service is to be.
type Plan struct {
	// Name tells it from other connectors that are services of the same machine.
	Name string
	// Executable is the path of the connector.
	Executable string
	// Config is the path of its configuration.
	Config string
	// Keys are the paths of the files with upstreams' keys.
	Keys []string
	// User makes it a service of this user, who needs no rights for that.
	User bool
	// Drain is how long running requests have at the end.
	Drain time.Duration
	// Account and Home are the user that a launchd service of the machine runs
	// as, and that user's folder.
	Account, Home string
}

// Check checks that a service can be made of the plan. Its errors name the
// fix.
func (p Plan) Check() error { return p.check(runtime.GOOS, os.TempDir()) }

func (p Plan) check(system, temporary string) error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	if !filepath.IsAbs(p.Executable) || !filepath.IsAbs(p.Config) {
		return errors.New("the paths of the program and of its configuration must be absolute")
	}
	for _, path := range append([]string{p.Executable, p.Config}, p.Keys...) {
		if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(path, "{{") {
			return fmt.Errorf("the path %q cannot stand in the description of a service; give the file another place", path)
		}
	}
	if under(p.Executable, temporary) {
		return fmt.Errorf("%s will not stay: it is in the folder for temporary files; put the program where it can stay, like /usr/local/bin/connector, and run that", p.Executable)
	}
	if system != "linux" || p.User {
		return nil
	}
	for _, home := range []string{"/home", "/root", "/run/user"} {
		if under(p.Executable, home) {
			return fmt.Errorf("a service of the machine sees no homes, and so not %s; run: sudo install %s /usr/local/bin/connector && sudo /usr/local/bin/connector service install", p.Executable, p.Executable)
		}
	}
	if strings.ContainsAny(p.Config, " :\"'\\") {
		return fmt.Errorf("systemd cannot hand on %s; move it to a path without spaces, colons and quotes, like /etc/postern/connector.json", p.Config)
	}
	for _, key := range p.Keys {
		if filepath.Dir(key) != filepath.Dir(p.Config) || strings.ContainsAny(key, " :\"'\\") {
			return fmt.Errorf("api_key_file: a service of the machine runs as a user of its own, who cannot read %s; move the file to %s, and give its name alone in the configuration",
				key, filepath.Dir(p.Config))
		}
	}
	return nil
}

// CheckName reports what is wrong with the name of a service: it becomes the name
// of files and folders.
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= 64
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || i > 0 && (c == '-' || c == '_'))
	}
	if !ok {
		return fmt.Errorf("%q cannot be the name of a service; use 1 to 64 letters, digits, - and _, like postern-rack", name)
	}
	return nil
}

// displayName is what people read.
func (p Plan) displayName() string {
	if p.Name == DefaultName {
		return "Postern connector"
	}
	return "Postern connector " + p.Name
}

// under reports whether a path is in a folder.
func under(path, dir string) bool {
	relative, err := filepath.Rel(dir, path)
	return err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
}
