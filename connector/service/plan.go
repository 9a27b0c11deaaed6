// Package service makes a connector a service of the machine or of its user:
// with systemd, launchd, the services of Windows, and others that
// github.com/kardianos/service supports.
//
//	plan.go      the description of a service, and its checks
//	files.go     its unit for systemd and its property list for launchd; its log
//	manager.go   the service manager
//	run.go       running under that of Windows
package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// DefaultName is the name of a service that was given no other.
const DefaultName = "postern-connector"

const description = "Publishes model servers of this machine's network through a Postern gateway"

// Plan describes a service.
type Plan struct {
	Name       string        // unique on the machine
	Executable string        // path of the connector
	Config     string        // path of its configuration
	Keys       []string      // paths of the files with upstreams' keys
	User       bool          // a service of this user, which needs no rights
	Drain      time.Duration // that running requests have at the end
	// Account and Home are the user that a launchd service of the machine runs
	// as, and that user's folder.
	Account, Home string
}

// Check checks the plan. Its errors name the fix.
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
		return fmt.Errorf("%s is in a temporary folder and would be deleted; move the program to a place like /usr/local/bin/connector, and run that", p.Executable)
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
		return fmt.Errorf("systemd cannot pass on %s; move it to a path without spaces, colons and quotes, like /etc/postern/connector.json", p.Config)
	}
	for _, key := range p.Keys {
		if filepath.Dir(key) != filepath.Dir(p.Config) || strings.ContainsAny(key, " :\"'\\") {
			return fmt.Errorf("api_key_file: a service of the machine runs as a user of its own, who cannot read %s; move the file to %s, and give its name alone in the configuration",
				key, filepath.Dir(p.Config))
		}
	}
	return nil
}

// name matches names of services: files and folders are named after them.
var name = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$`)

// CheckName checks the name of a service.
func CheckName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("%q cannot be the name of a service; use 1 to 64 letters, digits, - and _, like postern-rack", s)
	}
	return nil
}

func under(path, dir string) bool {
	relative, err := filepath.Rel(dir, path)
	return err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
}
