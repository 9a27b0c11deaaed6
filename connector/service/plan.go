// Package service installs a connector as a system service or as a user's service: with
// systemd, launchd, Windows, and others that github.com/kardianos/service supports.
//
//	plan.go      the description of a service, and its checks
//	files.go     its unit for systemd and its property list for launchd; its log
//	manager.go   the service manager
//	run.go       running as a Windows service
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

// DefaultName is the default name of a service.
const DefaultName = "postern-connector"

const description = "Publishes model servers through a Postern gateway"

// Plan describes a service.
type Plan struct {
	Name       string        // unique on the machine
	Executable string        // path of the connector
	Config     string        // path of its configuration
	Keys       []string      // paths of the files with upstreams' keys
	User       bool          // a service of the current user, which needs no privileges
	Drain      time.Duration // for running requests on shutdown
	// Account and Home are the user of a launchd system service, and that user's home.
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
			return fmt.Errorf("the path %q is not possible in a service; move the file", path)
		}
	}
	if isUnder(p.Executable, temporary) {
		return fmt.Errorf("%s is in a temporary folder and would be deleted; move the program to a place like "+
			"/usr/local/bin/connector, and run that", p.Executable)
	}
	if system != "linux" || p.User {
		return nil
	}
	for _, home := range []string{"/home", "/root", "/run/user"} {
		if isUnder(p.Executable, home) {
			return fmt.Errorf("a system service cannot access home folders, and so not %s; run: sudo install %s "+
				"/usr/local/bin/connector && sudo /usr/local/bin/connector service install", p.Executable, p.Executable)
		}
	}
	if strings.ContainsAny(p.Config, " :\"'\\") {
		return fmt.Errorf("systemd cannot load %s; move it to a path without spaces, colons and quotes, like "+
			"/etc/postern/connector.json", p.Config)
	}
	for _, key := range p.Keys {
		if filepath.Dir(key) != filepath.Dir(p.Config) || strings.ContainsAny(key, " :\"'\\") {
			return fmt.Errorf("api_key_file: a system service runs as an unprivileged user, which cannot read %s; move the "+
				"file to %s, and use only its name in the configuration",
				key, filepath.Dir(p.Config))
		}
	}
	return nil
}

// validName matches the names of services. Files and folders are named after them.
var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$`)

// CheckName checks the name of a service.
func CheckName(s string) error {
	if !validName.MatchString(s) {
		return fmt.Errorf("%q is not a valid service name; use 1 to 64 letters, digits, - and _, like postern-rack", s)
	}
	return nil
}

func isUnder(path, dir string) bool {
	relative, err := filepath.Rel(dir, path)
	return err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
}
