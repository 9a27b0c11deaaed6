package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// The line of the console, in the shells of most systems, installs a connector, pairs it
// and runs it in the foreground.
func TestInstallInShells(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{})
	for _, shell := range []string{"dash", "bash", "busybox sh"} {
		for user, root := range map[string]bool{"root": true, "user": false} {
			t.Run(shell+" as "+user, func(t *testing.T) {
				t.Parallel()
				name, applet, _ := strings.Cut(shell, " ")
				if _, err := exec.LookPath(name); err != nil {
					t.Skipf("%s is not installed", name)
				}
				c, o := newComputer(t, s, root), s.offer(t)
				command := append([]string{name}, strings.Fields(applet)...)
				p := c.start(t, "", append(command, "-c", s.line(o, shell, "--no-service"))...)
				s.approve(t, o)
				c.config(t)
				if !root && !c.installed() {
					t.Error("the program is not in ~/.local/bin")
				}
				if want := map[bool]string{
					true:  "in /usr/local/bin",
					false: "/.local/bin is not in PATH",
				}[root]; !strings.Contains(p.Log(), want) {
					t.Errorf("it does not print %q:\n%s", want, p.Log())
				}
				if !p.Running() {
					t.Errorf("it has ended:\n%s", p.Log())
				}
			})
		}
	}
}

// With --service the connector runs as a service: of the system, or of the user.
func TestInstallService(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{})
	for user, root := range map[string]bool{"root": true, "user": false} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			c, o := newComputer(t, s, root), s.offer(t)
			p := c.start(t, "", "sh", "-c", s.line(o, "sh", "--service"))
			s.approve(t, o)
			before := c.config(t)
			c.ends(t, p, 0, "Installed the service postern-connector", "The service runs version ", ": online at ")
			if root { // its system folders are gone
				return
			}
			// A paired machine is not paired again.
			p = c.start(t, "", "sh", "-c", s.line(s.offer(t), "sh", "--service"))
			c.ends(t, p, 0, "already paired", "--force", "This machine stays paired.", ": online at ")
			if c.config(t) != before {
				t.Error("the configuration has changed")
			}
		})
	}
}

// The user is asked whether to install the service, if there is a terminal.
func TestInstallAsks(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("script, which has a terminal, is not installed")
	}
	s := newShop(t, harness.Options{})
	for answer, want := range map[string]string{"y": "Installed the service", "n": "msg=connected"} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			c, o := newComputer(t, s, false), s.offer(t)
			p := c.start(t, answer+"\n", "script", "-qec", s.line(o, "sh", ""), "/dev/null")
			s.approve(t, o)
			c.config(t)
			p.WaitLog(t, "[Y/n]", limit)
			p.WaitLog(t, want, limit)
		})
	}
	t.Run("no terminal", func(t *testing.T) {
		t.Parallel()
		c, o := newComputer(t, s, false), s.offer(t)
		p := c.start(t, "", "sh", "-c", s.line(o, "sh", ""))
		waitPairing(t, s.Gateway, o.ID, "pending")
		s.Command(t, nil, "pairing", "approve", o.ID, "--yes")
		c.ends(t, p, 0, "/connector run", "/connector service install")
		c.config(t)
	})
}

// Nothing is installed if the archive is not the one of the script, if the script is truncated, or if the
// gateway has no archive for the machine.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{})
	script := s.client.Do(t, http.MethodGet, "/console/install.sh", "").Body
	t.Run("other machine", func(t *testing.T) {
		c := newComputer(t, s, false)
		c.program(t, "uname", "#!/bin/sh\n[ \"$1\" = -s ] && echo Linux || echo riscv64\n")
		c.ends(t, c.start(t, script, "sh", "-s", "--", s.offer(t).Code), 1, "no connector for linux/riscv64")
		if c.installed() {
			t.Error("it is installed")
		}
	})
	t.Run("cut", func(t *testing.T) {
		c := newComputer(t, s, false)
		for _, n := range []int{0, len(script) / 3, len(script) / 2, len(script) - len("main \"$@\"\n")} {
			p := c.start(t, script[:n], "sh", "-s", "--", s.offer(t).Code)
			p.WaitExit(t, limit)
			if c.installed() || strings.Contains(p.Log(), "Downloading") {
				t.Errorf("the first %d bytes do something:\n%s", n, p.Log())
			}
		}
	})
	t.Run("broken archive", func(t *testing.T) {
		c := newComputer(t, s, false)
		must(t, os.Truncate(s.archive, 1<<20))
		c.ends(t, c.start(t, script, "sh", "-s", "--", s.offer(t).Code), 1, "is damaged")
		if c.installed() {
			t.Error("it is installed")
		}
	})
}

// Behind a certificate of a private authority the line checks the script by its hash, and
// the connector the gateway by its pin.
func TestInstallOverPrivateCertificate(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{HTTPS: true})
	c, o := newComputer(t, s, false), s.offer(t)
	if !strings.Contains(o.Commands.Pair, " --pin ") {
		t.Errorf("the line has no pin: %s", o.Commands.Pair)
	}
	stdout, _, _ := s.Run(t, "pairing", "start")
	if !strings.Contains(stdout, "sha256sum") || strings.Count(stdout, " --pin ") != 2 {
		t.Errorf("pairing start prints\n%s", stdout)
	}
	c.start(t, "", "sh", "-c", s.line(o, "sh", "--no-service"))
	s.approve(t, o)
	c.config(t)

	c, o = newComputer(t, s, false), s.offer(t)
	before, hash, _ := strings.Cut(s.line(o, "sh", ""), `echo "`)
	digit := "0"
	if hash[0] == '0' {
		digit = "1"
	}
	changed := before + `echo "` + digit + hash[1:]
	if p := c.start(t, "", "sh", "-c", changed); p.WaitExit(t, limit) == 0 || c.installed() ||
		!strings.Contains(p.Log(), "FAILED") {
		t.Errorf("a script with another hash runs:\n%s", p.Log())
	}
	t.Run("--ca", func(t *testing.T) {
		root := filepath.Join(s.Dir, "data", "caddy", "pki", "authorities", "local", "root.crt")
		pair := func(name string, flags ...string) *harness.Process {
			return s.Pair(t, name, o.Code, s.up.URL, flags...)
		}
		p := pair("untrusted")
		if code := p.WaitExit(t, limit); code != 1 || !strings.Contains(p.Log(), "--ca") ||
			!strings.Contains(p.Log(), "--pin") {
			t.Errorf("without --ca: exit code %d\n%s", code, p.Log())
		}
		pair("trusted", "--ca", root)
		s.approve(t, o)
		hideToken(t, s.Gateway, "trusted")
	})
}

// Archives support range requests. No other file of their folder is served.
func TestConnectorArchives(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{})
	must(t, os.WriteFile(filepath.Join(filepath.Dir(s.archive), "secret.txt"), []byte("x"), 0o600))
	client, name := s.client, filepath.Base(s.archive)
	if a := client.Do(t, http.MethodGet, "/console/connectors/"+name, "",
		"Range: bytes=0-1"); a.Status != http.StatusPartialContent || a.Body != "\x1f\x8b" {
		t.Errorf("the first two bytes: %d, %q", a.Status, a.Body)
	}
	for _, other := range []string{
		"secret.txt", "..%2Fsecret.txt", "%2Fetc%2Fpasswd",
		strings.Replace(name, "0.9.0", "0.9.1", 1),
	} {
		if a := client.Do(t, http.MethodGet, "/console/connectors/"+other, ""); a.Status != http.StatusNotFound {
			t.Errorf("%s: status %d", other, a.Status)
		}
	}
	resp, err := client.HTTP.Do(client.Request(context.Background(), t, http.MethodGet, "/console/connectors/"+name, ""))
	must(t, err)
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if info, statErr := os.Stat(s.archive); err != nil || statErr != nil || n != info.Size() {
		t.Error(fmt.Errorf("%d bytes: %w", n, errors.Join(err, statErr)))
	}
}
