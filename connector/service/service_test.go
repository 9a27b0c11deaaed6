package service

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kardianos/service"
)

var update = flag.Bool("update", false, "write the golden files")

func plan() Plan {
	return Plan{
		Name: DefaultName, Executable: "/usr/local/bin/connector", Config: "/etc/postern/connector.json",
		Keys: []string{"/etc/postern/vllm.key", "/etc/postern/vllm.key"}, Drain: 30 * time.Second,
	}
}

func TestGolden(t *testing.T) {
	user := plan()
	user.User, user.Executable, user.Config,
		user.Home = true, `/home/me/my "tools"/50%/connector`, "/home/me/$x/connector.json", "/Users/me"
	agent := user
	agent.Executable, agent.Config = "/Users/me/bin/<connector>", "/Users/me/Library/Application "+
		"Support/postern/connector.json"
	daemon := agent
	daemon.User, daemon.Account = false, "me"
	named, namedAgent, packaged := plan(), agent, plan()
	packaged.Executable, packaged.Keys = "/usr/bin/connector", nil
	named.Name, namedAgent.Name = "postern-rack", "postern-rack"
	for name, got := range map[string]string{
		"system.service": plan().Unit(), "user.service": user.Unit(),
		"agent.plist": agent.PropertyList(), "daemon.plist": daemon.PropertyList(),
		"named.service": named.Unit(), "named.plist": namedAgent.PropertyList(),
		"../../../packaging/postern-connector.service": packaged.Unit(), // of the Linux packages
	} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not as in testdata (go test -update writes it):\n%s", name, got)
		}
	}
}

// TestUnitsAreValid asks systemd itself.
func TestUnitsAreValid(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	for _, user := range []bool{false, true} {
		p := plan()
		p.User, p.Executable = user, "/bin/true" // a program that exists
		dir := t.TempDir()
		path := filepath.Join(dir, p.Name+".service")
		if err := os.WriteFile(path, []byte(p.Unit()), 0o644); err != nil {
			t.Fatal(err)
		}
		mode := "--system"
		if user {
			mode = "--user"
		}
		verify := exec.Command(analyze, "verify", mode, "--man=no", path)
		verify.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "HOME="+dir)
		out, err := verify.CombinedOutput()
		if err != nil || strings.Contains(string(out), path) {
			t.Errorf("user %v: %v\n%s", user, err, out)
		}
		if user {
			continue
		}
		out, err = exec.Command(analyze, "security", "--offline=true", "--threshold=20", "--no-pager", path).CombinedOutput()
		if err != nil {
			t.Errorf("its exposure is over 2.0: %v\n%s", err, out)
		}
	}
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name, system string
		change       func(*Plan)
		want         string // "": no error
	}{
		{"as it is", "linux", func(*Plan) {}, ""},
		{"relative", "linux", func(p *Plan) { p.Config = "connector.json" }, "must be absolute"},
		{"temporary", "linux", func(p *Plan) { p.Executable = "/tmp/go-build1/connector" }, "is in a temporary folder"},
		{
			"at home", "linux", func(p *Plan) { p.Executable = "/home/me/connector" },
			"sudo install /home/me/connector /usr/local/bin/connector",
		},
		{"at home, of the user", "linux", func(p *Plan) { p.Executable, p.User = "/home/me/connector", true }, ""},
		{"at home, elsewhere", "darwin", func(p *Plan) { p.Executable = "/home/me/connector" }, ""},
		{
			"spaces", "linux", func(p *Plan) { p.Config = "/etc/my files/c.json"; p.Keys = nil },
			"like /etc/postern/connector.json",
		},
		{"a key elsewhere", "linux", func(p *Plan) { p.Keys = []string{"/root/key"} }, "move the file to /etc/postern"},
		{"a template", "linux", func(p *Plan) { p.Config = "/etc/{{Name}}.json" }, "move the file"},
		{"no name", "linux", func(p *Plan) { p.Name = "" }, "is not a valid service name"},
		{"a path as a name", "linux", func(p *Plan) { p.Name = "../x" }, "like postern-rack"},
		{"a flag as a name", "linux", func(p *Plan) { p.Name = "-rf" }, "like postern-rack"},
		{"a name", "linux", func(p *Plan) { p.Name = "postern_2-a" }, ""},
		{"lines", "darwin", func(p *Plan) { p.Config = "/etc/x\nUser=root" }, "move the file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := plan()
			tt.change(&p)
			err := p.check(tt.system, "/tmp")
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestLogCommand(t *testing.T) {
	t.Setenv("ProgramData", "/pd")
	p := Plan{Name: "rack", User: true, Home: "/Users/me"}
	for system, want := range map[string]string{
		"linux":   "journalctl --user -u rack",
		"darwin":  "tail -n 100 '/Users/me/Library/Logs/rack.log'",
		"windows": "Get-Content -Tail 100 -LiteralPath '/pd/postern/rack.log'",
	} {
		if got := p.logCommand(system); got != want {
			t.Errorf("%s: %s", system, got)
		}
	}
	if got := plan().logCommand("linux"); got != "sudo journalctl -u postern-connector" {
		t.Errorf("of the machine: %s", got)
	}
}

// TestSystemdUserService installs with a systemctl that only records its arguments.
func TestSystemdUserService(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("systemd is of Linux")
	}
	bin, home := t.TempDir(), t.TempDir()
	notes := filepath.Join(bin, "notes")
	script := "#!/bin/sh\necho \"$@\" >> " + notes + "\ncase $1 in is-active) echo active;; esac\n"
	for _, name := range []string{"systemctl", "rpm-ostree"} { // systemd is recognized by the latter
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("HOME", home)
	service.ChooseSystem(service.AvailableSystems()...)
	t.Cleanup(func() { service.ChooseSystem(service.AvailableSystems()...) })
	p := plan()
	p.User, p.Name = true, "postern-rack"
	m, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	if m.Platform() != "linux-systemd" {
		t.Fatalf("the platform is %s", m.Platform())
	}
	if err := m.Install(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, ".config/systemd/user/postern-rack.service")
	if unit, err := os.ReadFile(path); err != nil || string(unit) != p.Unit() {
		t.Errorf("%v, the unit is\n%s", err, unit)
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if state, err := m.State(); state != Running || err != nil {
		t.Errorf("state %s, %v", state, err)
	}
	if err := m.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the unit is still there: %v", err)
	}
	got, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	if want := `enable --user postern-rack.service
daemon-reload --user
start --user postern-rack.service
is-active postern-rack.service --user
disable --user postern-rack.service
daemon-reload --user
`; string(got) != want {
		t.Errorf("systemctl got\n%s", got)
	}
}

func TestProgram(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &program{ctx: ctx, cancel: cancel, done: make(chan struct{}), f: func(ctx context.Context) int {
		<-ctx.Done()
		return 7
	}}
	if err := p.Start(nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(nil); err != nil || p.code != 7 {
		t.Errorf("%v, code %d", err, p.code)
	}
	if Managed() && runtime.GOOS != "windows" {
		t.Error("only Windows manages so")
	}
}

// TestNameIn: a service finds its name among its arguments.
func TestNameIn(t *testing.T) {
	named := plan()
	named.Name = "postern-rack"
	for want, p := range map[string]Plan{DefaultName: plan(), "postern-rack": named} {
		if got := NameIn(append([]string{p.Executable}, p.config().Arguments...)); got != want || p.config().Name != want {
			t.Errorf("a service %s finds the name %s", p.config().Name, got)
		}
	}
	if a, b := plan().config().DisplayName, named.config().DisplayName; a == b {
		t.Errorf("Windows would not take two services %q", a)
	}
}

func TestPretended(t *testing.T) {
	for _, tt := range []struct {
		platform, first string
		want            bool
	}{
		{"unix-systemv", "init\n", false},
		{"unix-systemv", "sh\n", true},
		{"unix-systemv", "docker-init\n", true},
		{"unix-systemv", "", true}, // without /proc
		{"linux-systemd", "systemd\n", false},
		{"darwin-launchd", "", false},
		{"windows-service", "", false},
	} {
		if got := isAssumed(tt.platform, tt.first); got != tt.want {
			t.Errorf("%s with the first process %q: %v", tt.platform, tt.first, got)
		}
	}
}
