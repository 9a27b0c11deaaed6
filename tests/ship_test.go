package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// sdkRetries is how often the official SDKs send a request again.
const sdkRetries = 2

// A release is installed, used, upgraded under load, backed up, restored on another
// machine, and removed.
func TestShipped(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds two releases")
	}
	old, next := release(t, oldVersion), release(t, newVersion)
	s := newServer(t, nil)
	s.install(t, filepath.Join(old, "postern_0.9.0_linux_"+runtime.GOARCH+".deb"))
	s.configure(t)
	s.serve(t)
	c, u := s.customer(t)
	u.awaitVersion(t, "v"+oldVersion)

	// The package restarts the gateway. A client that tries again does not notice.
	l := u.traffic(t, sdkRetries)
	l.await(t, upgradeClients)
	s.install(t, filepath.Join(next, "postern_0.9.1_linux_"+runtime.GOARCH+".deb"))
	l.await(t, upgradeClients)
	if got := s.postern(t, "version"); !strings.HasPrefix(got, "postern v"+newVersion+"\n") {
		t.Errorf("after the upgrade the program prints %q", got)
	}

	// The new gateway has the connector's next version, and the line that installs it.
	var list []struct{ Version, Update string }
	harness.Poll(t, limit, "the line of the older connector", func(context.Context) error {
		s.Manage(t, http.MethodGet, "/connectors", nil, &list)
		if list[0].Update == "" {
			return fmt.Errorf("the connectors are %+v", list)
		}
		return nil
	})
	p := c.start(t, "", "sh", "-c", list[0].Update)
	if code := p.WaitExit(t, restartLimit); code != 0 {
		t.Errorf("%q: exit code %d\n%s", list[0].Update, code, p.Log())
	}
	l.await(t, upgradeClients)
	u.awaitVersion(t, "v"+newVersion)
	for _, o := range l.end() {
		if o.status != http.StatusOK || o.err != nil {
			t.Errorf("request %s: status %d, %v, %s", o.id, o.status, o.err, clip(o.body))
		}
	}
	u.once(t, l)

	elsewhere := s.move(t, filepath.Join(next, "postern_0.9.1_linux_"+runtime.GOARCH+".deb"))
	waitOnline(t, elsewhere.Gateway, c.connector(t, elsewhere))
	served(t, u.Client.Post(t, harness.Chat("m", `,"user":"moved"`)), "on the other machine")
	c.remove(t)
	elsewhere.remove(t)
}

// release builds the programs of a version, and returns the folder of the results.
func release(t *testing.T, version string) string {
	t.Helper()
	root := harness.Root(t)
	folder := filepath.Join(t.TempDir(), version)
	cmd := exec.Command(filepath.Join(root, "xcaddy.sh"), "release", version, "-targets", "linux/"+runtime.GOARCH,
		"-parts", "archives,packages", "-out", folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building version %s: %v\n%s", version, err, out)
	}
	return folder
}

// customer pairs a connector that the line of the console installs, which serves the
// models of an upgrade, and sends a request through it.
func (s *server) customer(t *testing.T) (*computer, *upgrade) {
	t.Helper()
	_, key := s.Key(t, "all", "*")
	at := &shop{Gateway: s.Gateway, up: upstream.Start(t), client: s.Client(t, key)}
	at.up.Handle("up-model", upstream.JSON(upstream.Completion("up-model", "hello")))
	c, o := newComputer(t, at, false), at.offer(t)
	p := c.start(t, "", "sh", "-c", at.line(o, "sh", "--service"))
	at.approve(t, o)
	c.config(t)
	c.ends(t, p, 0, "Installed the service postern-connector", "The service runs version v"+oldVersion)

	return c, at.upgrade(t)
}

// connector returns the id of the only connector.
func (c *computer) connector(t *testing.T, s *server) string {
	t.Helper()
	var list []struct{ ID string }
	s.Manage(t, http.MethodGet, "/connectors", nil, &list)
	if len(list) != 1 {
		t.Fatalf("the connectors are %v", list)
	}
	return list[0].ID
}

// remove removes the connector's service and its program.
func (c *computer) remove(t *testing.T) {
	t.Helper()
	program := filepath.Join(c.dir, "home", ".local", "bin", "connector")
	c.ends(t, c.start(t, "", program, "service", "uninstall"), 0)
	if err := os.Remove(program); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "home", ".config/systemd/user/postern-connector.service")); err == nil {
		t.Error("the connector's service is still installed")
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is valid
	for _, path := range processes {
		if to, _ := os.Readlink(path); strings.HasPrefix(to, program) { // it may have ended
			t.Errorf("%s still runs: %s", to, path)
		}
	}
}

// move ends a gateway and returns one on another machine that has its configuration and
// the data of a backup.
func (s *server) move(t *testing.T, pack string) *server {
	t.Helper()
	const backup = "/root/postern.db"
	if _, errs, code := s.Run(t, "backup", backup); code != 0 {
		t.Fatalf("backup: exit code %d, %s", code, errs)
	}
	s.stop(t)
	to := newServer(t, s)
	to.install(t, pack)
	for _, path := range []string{backup, "/etc/postern/Caddyfile"} {
		content := read(t, s.path(path))
		must(t, os.WriteFile(to.path(path), content, 0o644))
	}
	out := to.postern(t, "gateway", "restore", backup, "--config", "/etc/postern/Caddyfile", "--yes")
	if !strings.Contains(out, "The database is restored.") {
		t.Errorf("restore prints %s", out)
	}
	to.serve(t)
	return to
}

// remove removes the package: its data and configuration stay until a purge.
func (s *server) remove(t *testing.T) {
	t.Helper()
	exist := func(want bool, paths ...string) {
		t.Helper()
		for _, path := range paths {
			if _, err := os.Lstat(s.path(path)); (err == nil) != want {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	s.run(t, "dpkg", "--remove", "postern")
	if s.Process.Running() {
		t.Error("the removal leaves the gateway running")
	}
	exist(false, "/usr/bin/postern", "/usr/lib/postern")
	exist(true, "/var/lib/postern", "/etc/postern/Caddyfile")
	s.run(t, "dpkg", "--purge", "postern")
	exist(false, "/var/lib/postern", "/etc/postern")
	if users := string(read(t, s.path("/etc/passwd"))); strings.Contains(users, "\npostern:") {
		t.Error("the purge leaves the user")
	}
}
