package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/service"
)

// fakeManager is a machine's service manager.
type fakeManager struct {
	states map[string]service.State // by the plan, see of
	plans  []service.Plan
	did    []string
	fail   error

	platform        string // "" is fake
	onStop, onStart func() // nil: nothing
}

func (f *fakeManager) of(p service.Plan) (service.Manager, error) {
	f.plans = append(f.plans, p)
	return &fakeService{f, which(p.Name, p.User)}, nil
}

func which(name string, user bool) string { return fmt.Sprint(name, " ", user) }

type fakeService struct {
	*fakeManager
	which string
}

func (s *fakeService) act(what string, state service.State) error {
	s.did = append(s.did, what)
	switch {
	case what == "stop" && s.onStop != nil:
		s.onStop()
	case what == "start" && s.onStart != nil:
		s.onStart()
	}
	if s.fail != nil {
		return s.fail
	}
	s.states[s.which] = state
	return nil
}

func (s *fakeService) Platform() string { return cmp.Or(s.platform, "fake") }
func (s *fakeService) Install() error   { return s.act("install", service.Stopped) }
func (s *fakeService) Uninstall() error { return s.act("uninstall", service.NotInstalled) }
func (s *fakeService) Start() error     { return s.act("start", service.Running) }
func (s *fakeService) Stop() error      { return s.act("stop", service.Stopped) }

func (s *fakeService) Restart() error { return s.act("restart", service.Running) }

func (s *fakeService) State() (service.State, error) {
	return cmp.Or(s.states[s.which], service.NotInstalled), nil
}

func newFakeManager() *fakeManager {
	return &fakeManager{states: map[string]service.State{}}
}

// runService executes a command line on a machine with such services.
func (h *home) runService(f *fakeManager, root bool, args ...string) (code int, stdout, stderr string) {
	out, errs := new(output), new(output)
	sys := h.system(out, errs)
	sys.services, sys.root, sys.executable = f.of, root, "/usr/local/bin/connector"
	code = run(h.t.Context(), append([]string{"service"}, args...), sys)
	return code, out.String(), errs.String()
}

func TestServiceLife(t *testing.T) {
	for _, root := range []bool{true, false} {
		h, f := newHome(t), newFakeManager()
		code, stdout, stderr := h.runService(f, root, "install", "--config", h.config)
		if code != exitOK || !strings.Contains(stdout, "Installed the service postern-connector (fake).\nIt is running.") {
			t.Fatalf("root %v: code %d, %s%s", root, code, stdout, stderr)
		}
		if p := f.plans[0]; p.User == root || p.Config != h.config || p.Executable != "/usr/local/bin/connector" ||
			p.Drain != defaultDrain {
			t.Errorf("plan %+v", p)
		}
		if code, _, stderr := h.runService(f, root, "install", "--config", h.config); code != exitRuntime ||
			!strings.Contains(stderr, "is already installed") || !strings.Contains(stderr, "connector service uninstall") {
			t.Errorf("again: code %d, %s", code, stderr)
		}
		if code, stdout, stderr := h.runService(f, root, "uninstall"); code != exitOK ||
			!strings.Contains(stdout, "Its configuration was kept.") {
			t.Errorf("uninstall: code %d, %s%s", code, stdout, stderr)
		}
		if got := strings.Join(f.did, " "); got != "install start stop uninstall" {
			t.Errorf("done: %s", got)
		}
		for _, command := range []string{"uninstall", "restart"} {
			if code, _, stderr := h.runService(f, root, command); code != exitMissing ||
				!strings.Contains(stderr, "not installed; install it with `connector service install`") {
				t.Errorf("%s of nothing: code %d, %s", command, code, stderr)
			}
		}
	}
}

// TestServicesSideBySide: each command finds the service with its name, and its hints name that
// service.
func TestServicesSideBySide(t *testing.T) {
	h, f := newHome(t), newFakeManager()
	rack := h.config + ".rack"
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rack, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]string{service.DefaultName: h.config, "postern-rack": rack} {
		code, stdout, stderr := h.runService(f, false, "install", "--name", name, "--config", config)
		if code != exitOK || !strings.Contains(stdout, "Installed the service "+name+" (fake).") ||
			!strings.Contains(stdout, "Check it with:  connector status --config "+config+"\n") {
			t.Fatalf("code %d, %s%s", code, stdout, stderr)
		}
	}
	code, _, stderr := h.runService(f, false, "install", "--name", "postern-rack", "--config", rack)
	if code != exitRuntime || !strings.Contains(stderr, "connector service uninstall --user --name postern-rack") {
		t.Errorf("again: code %d, %s", code, stderr)
	}
	if code, stdout, _ := h.runService(f, false, "uninstall", "--name", "postern-rack"); code != exitOK ||
		!strings.Contains(stdout, "Removed the service postern-rack.") {
		t.Errorf("uninstall: code %d, %s", code, stdout)
	}
	if f.states[which(service.DefaultName, true)] != service.Running ||
		f.states[which("postern-rack", true)] != service.NotInstalled {
		t.Errorf("states %v", f.states)
	}
	code, _, stderr = h.runService(f, false, "uninstall", "--name", "postern-rack")
	if code != exitMissing || !strings.Contains(stderr,
		"install it with `connector service install --name postern-rack`") {
		t.Errorf("uninstall of nothing: code %d, %s", code, stderr)
	}
	for _, command := range []string{"install", "uninstall", "restart"} {
		args := []string{command, "--name", "a b"}
		if command == "install" {
			args = append(args, "--config", h.config)
		}
		if code, _, stderr := h.runService(f, true, args...); code != exitUsage ||
			!strings.Contains(stderr, "is not a valid service name") {
			t.Errorf("%s of a wrong name: code %d, %s", command, code, stderr)
		}
	}
}

func TestServiceInstallRefuses(t *testing.T) {
	h, f := newHome(t), newFakeManager()
	write := func(name, text string) string {
		path := filepath.Join(filepath.Dir(h.config), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	h.env["TUNNEL_TOKEN"] = testToken.Encode()
	noToken := write("a.json", `{"upstream": "http://localhost:1"}`)
	withKey := write("b.json", `{"tunnel_token": "`+testToken.Encode()+
		`", "upstream": "http://localhost:1", "api_key_file": "`+write("x", "k")+`"}`)
	noKey := write("c.json", `{"tunnel_token": "`+testToken.Encode()+
		`", "upstream": "http://localhost:1", "api_key_file": "none"}`)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no configuration", nil, "pair this machine with `connector pair`, or use --config FILE"},
		{
			"no token in the file",
			[]string{"--config", noToken},
			"A service reads its configuration file only, and does not use this environment",
		},
		{"no key", []string{"--config", noKey}, "api_key_file: open "},
		{"no time", []string{"--config", h.config, "--drain-timeout", "0s"}, "--drain-timeout: 0s is not a duration"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if code, _, stderr := h.runService(f, true, append([]string{"install"}, tt.args...)...); code != exitUsage ||
				!strings.Contains(stderr, tt.want) {
				t.Errorf("code %d, %s", code, stderr)
			}
		})
	}
	if code, _, stderr := h.runService(f, true, "install", "--no-start", "--config", withKey); code != exitOK ||
		len(f.plans) != 1 || len(f.plans[0].Keys) != 1 {
		t.Errorf("with a key: code %d, %s, plans %+v", code, stderr, f.plans)
	}
	if got := strings.Join(f.did, " "); got != "install" {
		t.Errorf("done: %s", got)
	}
}

func TestServiceFailures(t *testing.T) {
	h, f := newHome(t), newFakeManager()
	f.fail = os.ErrPermission
	code, _, stderr := h.runService(f, true, "install", "--config", h.config)
	if code != exitRuntime || !strings.Contains(stderr, "run it with sudo") ||
		strings.Join(f.did, " ") != "install uninstall" {
		t.Errorf("code %d, %s, done %v", code, stderr, f.did)
	}
	f.fail, f.states[which(service.DefaultName, false)] = nil, service.Running
	if code, _, stderr := h.runService(f, false, "uninstall"); code != exitRuntime ||
		!strings.Contains(stderr, "sudo connector service uninstall") {
		t.Errorf("the machine's, by a user: code %d, %s", code, stderr)
	}
	sys := h.system(new(output), new(output))
	sys.services = func(service.Plan) (service.Manager, error) { return nil, service.ErrNoManager }
	sys.executable = "/usr/local/bin/connector"
	if err := installService(sys,
		serviceFlags{name: service.DefaultName, config: h.config, drain: defaultDrain, user: true}); !errors.Is(err,
		service.ErrNoManager) {
		t.Errorf("error %v", err)
	}
}

// Each hint finds the connector of its service.
func TestStatusOfService(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the sockets are of Linux")
	}
	for _, tt := range []struct {
		plan service.Plan
		want string
	}{
		{service.Plan{Name: service.DefaultName, Config: "/c"}, "sudo connector status"},
		{service.Plan{Name: "rack", Config: "/c"}, "sudo connector status --socket /run/rack/control.sock"},
		{service.Plan{Name: service.DefaultName, Config: "/c", User: true}, "connector status --config /c"},
	} {
		if got := statusOf(tt.plan); got != tt.want {
			t.Errorf("%+v: %s, not %s", tt.plan, got, tt.want)
		}
	}
}
