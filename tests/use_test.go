package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/tests/harness"
)

// The line of a set-up code, in the shells of most systems, writes the settings of a client, with a key that works.
func TestUseInShells(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{})
	con := s.Connector(t, "box", s.up.URL)
	s.Deploy(t, "my-model", con.ID, "", "up-model")
	for _, shell := range []string{"dash", "bash", "busybox sh"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			name, applet, _ := strings.Cut(shell, " ")
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("%s is not installed", name)
			}
			c := newComputer(t, s, false)
			var made manage.CreatedSetup
			s.Command(t, &made, "key", "setup", "opencode", "--name", name, "--default-model", "my-model")
			line := strings.NewReplacer("| sh -s", "| "+shell+" -s", `&& sh "$s"`, `&& `+shell+` "$s"`).
				Replace(made.Commands.Shell)
			command := append(append([]string{name}, strings.Fields(applet)...), "-c")
			run := func(line string) *harness.Process { return c.start(t, "", append(command, line)...) }
			c.ends(t, run(line), 0)
			written := false
			for _, file := range []string{"opencode.json", "opencode.jsonc"} {
				settings, err := os.ReadFile(filepath.Join(c.dir, "home", ".config", "opencode", file))
				if err != nil {
					continue
				}
				written = true
				key := regexp.MustCompile(`sk-svc-[0-9A-Za-z]{43}`).FindString(string(settings))
				s.Hide(key) // nowhere in the output
				if a := s.Client(t, key).Post(t, harness.Chat("my-model", "")); a.Status != 200 {
					t.Errorf("a request with the key %.10q: %d %s", key, a.Status, a.Body)
				}
			}
			if !written {
				t.Error("the settings are not written")
			}
			c.ends(t, run(line), 3, "code is wrong, was already used, or has expired")
			c.ends(t, run(strings.Replace(line, "opencode "+made.Code, "--undo opencode", 1)), 0)
			if left, _ := filepath.Glob(filepath.Join(c.dir, "home", ".config", "opencode", "*.json*")); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// Behind a certificate of Caddy's own authority the line loads its root certificate, checks it, and keeps it for the
// client.
func TestUseOverPrivateCertificate(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{HTTPS: true})
	s.Deploy(t, "my-model", s.Connector(t, "box", s.up.URL).ID, "", "up-model")
	c := newComputer(t, s, false)
	var made manage.CreatedSetup
	s.Command(t, &made, "key", "setup", "claude", "--default-model", "my-model")
	before, hash, ok := strings.Cut(made.Commands.Shell, " --ca sha256:")
	if !ok || strings.Contains(before, "--pin") || strings.Contains(strings.Join(made.Hints, " "), "--ca") {
		t.Fatalf("%+v", made)
	}
	forged := before + " --ca sha256:" + strings.Repeat("0", len(hash))
	for line, want := range map[string]string{
		forged:              "is not the root certificate with the SHA-256 of --ca",
		made.Commands.Shell: "A test request was answered.",
	} {
		p := c.start(t, "", "sh", "-c", line)
		if code := p.WaitExit(t, limit); (code == 0) != (line != forged) || !strings.Contains(p.Log(), want) {
			t.Errorf("exit code %d:\n%s", code, p.Log())
		}
	}
	settings := string(read(t, filepath.Join(c.dir, "home", ".claude", "settings.json")))
	s.Hide(regexp.MustCompile(`sk-svc-[0-9A-Za-z]{43}`).FindString(settings))
	_, kept, _ := strings.Cut(settings, `"NODE_EXTRA_CA_CERTS": "`)
	kept, _, _ = strings.Cut(kept, `"`)
	root := read(t, filepath.Join(s.Dir, "data", "caddy", "pki", "authorities", "local", "root.crt"))
	if got := read(t, kept); string(got) != string(root) {
		t.Errorf("%s has %s", kept, got)
	}
}
