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
