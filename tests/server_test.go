package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	rigs "github.com/postern-dev/postern/tests/rig"
)

// A server is a machine with the programs and files of this one. Its changes are private, and a service
// manager restarts and stops the gateway when the package asks for it. It has the network of this machine.
type server struct {
	*harness.Gateway
	machine *harness.Process // holds its namespace
	unit    map[string]string
	udp     string
}

// boot makes the machine's file system in the folder $0, and waits.
const boot = `set -e
umask 022
mount -t tmpfs tmpfs "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root"
mount --rbind /proc "$0/root/proc"
mount --rbind /dev "$0/root/dev"
mount -t tmpfs -o mode=755 tmpfs "$0/root/run"
mount -t tmpfs -o mode=1777 tmpfs "$0/root/tmp"
exec chroot "$0/root" sh -c 'echo ready; exec sleep infinity'`

// askingSystemctl asks the test to restart or stop the gateway, and waits until it has.
const askingSystemctl = `#!/bin/sh
case $1 in
restart | try-restart | stop) # an upgrade tries to restart
	echo "${1#try-}" >/run/asking
	mv /run/asking /run/asked
	while [ -e /run/asked ]; do sleep 0.02; done
	;;
esac
`

// newServer starts a machine. Its gateway gets free addresses, or those of another server.
func newServer(t *testing.T, like *server) *server {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("it needs the namespaces of Linux, and root")
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not installed")
	}
	dir := t.TempDir()
	disk, bin := filepath.Join(dir, "disk"), filepath.Join(dir, "bin")
	must(t, errors.Join(os.Mkdir(disk, 0o755), os.Mkdir(bin, 0o755)))
	s := &server{machine: harness.StartProcess(t, dir, "machine",
		exec.Command("unshare", "--mount", "sh", "-c", boot, disk))}
	s.machine.WaitLog(t, "ready", limit)
	// The gateway's commands are those of root on the machine.
	program := fmt.Sprintf("#!/bin/sh\nexec nsenter --target %d --mount --root env -u XDG_DATA_HOME -u XDG_CONFIG_HOME "+
		"HOME=/root /usr/bin/postern \"$@\"\n", s.machine.Pid())
	for _, name := range []string{"caddy", "connector"} { // the connector's is not used
		must(t, os.WriteFile(filepath.Join(bin, name), []byte(program), 0o755))
	}
	r, err := rigs.New(rigs.Options{Dir: dir, Bin: bin})
	must(t, err)
	r.Hide(harness.Prompt)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	process, err := r.Process("gateway", s.start)
	must(t, err)
	own := &rigs.Gateway{Rig: r, Process: process}
	s.Gateway = &harness.Gateway{Gateway: own, Process: &harness.Process{Process: process}}
	if like != nil {
		own.URL, own.Admin, s.udp = like.URL, like.Admin, like.udp
	} else {
		own.URL = strings.Replace("http://"+harness.FreeAddr(t), "127.0.0.1", "localhost", 1)
		own.Admin, s.udp = rigs.Admin(harness.FreeAddr(t)), harness.FreeAddr(t)
	}
	return s
}

// path returns the path on this machine of a path of the server.
func (s *server) path(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", s.machine.Pid(), path)
}

// run runs a command as root on the machine, and returns what it prints.
func (s *server) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("nsenter",
		append([]string{"--target", fmt.Sprint(s.machine.Pid()), "--mount", "--root", "--"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// postern runs a command of the installed program.
func (s *server) postern(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Caddy(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("postern %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// install installs a package, and keeps a configuration that was changed.
func (s *server) install(t *testing.T, pack string) {
	t.Helper()
	content := read(t, pack)
	must(t, os.WriteFile(s.path("/tmp/postern.deb"), content, 0o644))
	s.run(t, "dpkg", "--force-confold", "--install", "/tmp/postern.deb")
	s.unit = map[string]string{}
	for line := range strings.Lines(string(read(t, s.path("/usr/lib/systemd/system/postern.service")))) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found {
			s.unit[name] = value
		}
	}
}

// configure gives the gateway of the package the addresses of the test.
func (s *server) configure(t *testing.T) {
	t.Helper()
	path := s.path("/etc/postern/Caddyfile")
	text := string(read(t, path))
	for from, to := range map[string]string{
		"admin unix//run/postern/admin.sock|0600": "admin " + string(s.Admin),
		"listen 127.0.0.1:7443":                   "listen " + s.udp,
		"\nhttp://localhost {":                    "\n" + s.URL + " {",
	} {
		if strings.Count(text, from) != 1 {
			t.Fatalf("the Caddyfile of the package lacks %q", from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// start returns the command line of the unit, as its user.
func (s *server) start() *exec.Cmd {
	args := []string{"--target", fmt.Sprint(s.machine.Pid()), "--mount", "--root"}
	users, _ := os.ReadFile(s.path("/etc/passwd")) // without the user, it does not start
	for line := range strings.Lines(string(users)) {
		if words := strings.Split(line, ":"); words[0] == s.unit["User"] {
			args = append(args, "--setuid", words[2], "--setgid", words[3])
		}
	}
	args = append(args, "--", "env", "HOME=/var/lib/postern")
	args = append(args, strings.Fields(s.unit["Environment"])...)
	cmd := exec.Command("nsenter", append(args, strings.Fields(s.unit["ExecStart"])...)...)
	cmd.Dir = "/"
	return cmd
}

// serve starts the gateway, and from now on does what the package asks systemd for.
func (s *server) serve(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(s.path("/run/systemd/system"), 0o755))
	must(t, os.WriteFile(s.path("/usr/bin/systemctl"), []byte(askingSystemctl), 0o755))
	s.Restart(t)
	status := string(read(t, fmt.Sprintf("/proc/%d/status", s.Process.Pid())))
	if strings.Contains(status, "\nUid:\t0") || s.unit["User"] != "postern" {
		t.Errorf("the gateway runs as root:\n%s", status)
	}
	var manager sync.WaitGroup
	t.Cleanup(manager.Wait)
	manager.Go(func() {
		for t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
			asked, err := os.ReadFile(s.path("/run/asked"))
			if err != nil {
				continue
			}
			begin := time.Now()
			if err := s.Process.Terminate(45 * time.Second); err != nil { // TimeoutStopSec
				t.Error(err)
			}
			if strings.TrimSpace(string(asked)) == "restart" {
				if err := s.Gateway.Gateway.Start(t.Context()); err != nil {
					t.Error(err)
				}
			}
			t.Logf("%s: %v", strings.TrimSpace(string(asked)), time.Since(begin).Round(time.Millisecond))
			_ = os.Remove(s.path("/run/asked")) // the machine may have gone
		}
	})
}

// stop stops the gateway as `systemctl stop` does.
func (s *server) stop(t *testing.T) {
	t.Helper()
	s.Process.Signal(t, syscall.SIGTERM)
	if code := s.Process.WaitExit(t, limit); code != 0 {
		t.Errorf("the gateway ended with code %d", code)
	}
}
