package tests

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// A shop is a gateway that hands out the connector of bin.
type shop struct {
	*harness.Gateway
	archive string // path
	up      *upstream.Server
	client  *harness.Client // with a key for all models
}

func newShop(t *testing.T, o harness.Options) *shop {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("it needs the namespaces of Linux")
	}
	dir := t.TempDir()
	o.Console, o.App = true, "connectors "+dir
	s := &shop{
		Gateway: harness.Start(t, o), up: upstream.Start(t),
		archive: filepath.Join(dir, "archive"),
	}
	_, key := s.Key(t, "all", "*")
	s.client = s.Client(t, key)
	s.up.Handle("up-model", upstream.JSON(upstream.Completion("up-model", "hello")))
	s.handOut(t, read(t, filepath.Join(s.Bin(), "connector")), oldVersion)
	return s
}

// offer is a pairing with the commands that the console and the command line show.
type offer struct {
	pairing
	Commands struct{ Install, Pair string }
}

func (s *shop) offer(t *testing.T) offer {
	t.Helper()
	var o offer
	s.Command(t, &o, "pairing", "start")
	if o.Commands.Install == "" || !strings.Contains(o.Commands.Install, o.Code) {
		t.Fatalf("pairing start: %+v", o)
	}
	return o
}

// line returns the line that installs and pairs, for a shell and the model server of the
// test, with more flags.
func (s *shop) line(o offer, shell, flags string) string {
	return strings.NewReplacer("| sh -s", "| "+shell+" -s", `&& sh "$s"`, `&& `+shell+` "$s"`,
		"http://localhost:11434", s.up.URL).Replace(o.Commands.Install) + " " + flags
}

// approve waits for the device of a pairing, approves it, and sends a request through it.
func (s *shop) approve(t *testing.T, o offer) {
	t.Helper()
	waitPairing(t, s.Gateway, o.ID, "pending")
	var approved pairing
	s.Command(t, &approved, "pairing", "approve", o.ID, "--yes")
	waitOnline(t, s.Gateway, approved.Connector)
	s.Deploy(t, o.ID, approved.Connector, "", "up-model")
	if a := s.client.Post(t, harness.Chat(o.ID, "")); a.Status != http.StatusOK || !strings.Contains(a.Body, "hello") {
		t.Errorf("a request through the installed connector: %d %s", a.Status, a.Body)
	}
}

// A computer runs the lines of a shop, as root or as another user. It has its own home, folder for temporary
// files and, for root, copies of the system folders that the line changes.
type computer struct {
	shop *shop
	dir  string
	root bool
	name string // of its processes
}

// fresh hides the folders that root changes. $0 is the computer's folder.
const fresh = `set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /usr/local/bin
cp -a /etc "$0/etc"
mount --bind "$0/etc" /etc
exec "$@"`

func newComputer(t *testing.T, s *shop, root bool) *computer {
	t.Helper()
	if os.Geteuid() != 0 && root {
		t.Skip("not root")
	}
	dir, err := os.MkdirTemp("", "install-*") // that of the test is closed to other users
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &computer{
		shop: s, dir: dir, root: root,
		name: strings.ReplaceAll(strings.ReplaceAll(t.Name(), "/", "-"), " ", "_"),
	}
	for _, folder := range []string{"", "home", "tmp", "fake"} {
		path := filepath.Join(dir, folder)
		must(t, errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o755)))
		if os.Geteuid() == 0 && !root && folder != "" {
			must(t, os.Chown(path, nobody, nobody))
		}
	}
	systemctl := read(t, "testdata/systemctl")
	c.program(t, "systemctl", string(systemctl))
	c.program(t, "rpm-ostree", "#!/bin/sh\n") // its presence means systemd
	return c
}

const nobody = 65534 // the user and group of that name

// program puts a program in front of those of this machine.
func (c *computer) program(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(c.dir, "fake", name), []byte(text), 0o755))
}

// start starts a command. All processes that it leaves end with the test.
func (c *computer) start(t *testing.T, input string, command ...string) *harness.Process {
	t.Helper()
	if c.root {
		command = append([]string{"unshare", "--mount", "sh", "-c", fresh, c.dir}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stdin = filepath.Join(c.dir, "home"), strings.NewReader(input)
	cmd.Env = []string{
		"HOME=" + cmd.Dir, "TMPDIR=" + filepath.Join(c.dir, "tmp"), "FAKE=" + filepath.Join(c.dir, "fake"),
		"PATH=" + filepath.Join(c.dir, "fake") + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"XDG_CONFIG_HOME=", "XDG_RUNTIME_DIR=", "XDG_DATA_HOME=",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal, and a group of its own
	if os.Geteuid() == 0 && !c.root {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	p := c.shop.StartProcess(t, c.name, cmd)
	t.Cleanup(c.end)
	return p
}

// end ends all processes of the computer, which have its variable FAKE. Some have their own terminal or
// service manager.
func (c *computer) end() {
	for found := true; found; {
		found = false
		environments, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
		for _, path := range environments {
			environment, _ := os.ReadFile(path) // the process may have ended
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err == nil && bytes.Contains(environment, []byte("FAKE="+c.dir+"/")) &&
				syscall.Kill(pid, syscall.SIGKILL) == nil {
				found = true
			}
		}
	}
}

// config returns the configuration that the line wrote, whose token it hides.
func (c *computer) config(t *testing.T) string {
	t.Helper()
	path := filepath.Join(c.dir, "home", ".config", "postern", "connector.json")
	if c.root {
		path = filepath.Join(c.dir, "etc", "postern", "connector.json")
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v", path, info.Mode())
	}
	data := read(t, path)
	_, token, _ := strings.Cut(string(data), `"tunnel_token": "`)
	token, _, _ = strings.Cut(token, `"`)
	if !strings.HasPrefix(token, "ptt_") {
		t.Fatalf("no token in %s", path)
	}
	c.shop.Hide(token)
	return string(data)
}

// installed reports whether the user's program is there.
func (c *computer) installed() bool {
	_, err := os.Stat(filepath.Join(c.dir, "home", ".local", "bin", "connector"))
	return err == nil
}

// ends expects that a process ends with a code, and has written some texts.
func (c *computer) ends(t *testing.T, p *harness.Process, code int, texts ...string) {
	t.Helper()
	if got := p.WaitExit(t, limit); got != code {
		t.Errorf("exit code %d, want %d:\n%s", got, code, p.Log())
	}
	for _, text := range texts {
		if !strings.Contains(p.Log(), text) {
			t.Errorf("it does not print %q:\n%s", text, p.Log())
		}
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "tmp", "tmp*")); len(left) > 0 {
		t.Errorf("it leaves %v in the folder for temporary files", left)
	}
}
