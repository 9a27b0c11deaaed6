package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/service"
)

// runUpdate executes `connector update` on a machine with these services.
func (h *home) runUpdate(f *fakeManager, plans []service.Plan, args ...string) (code int, stdout, stderr string) {
	out, errs := new(output), new(output)
	sys := h.system(out, errs)
	sys.services, sys.executable = f.of, filepath.Join(filepath.Dir(h.config), "connector")
	sys.installed = func() ([]service.Plan, error) { return plans, nil }
	code = run(h.t.Context(), append([]string{"update"}, args...), sys)
	return code, out.String(), errs.String()
}

// Without an answer of the gateway, nothing changes, and the error names the fix.
func TestUpdateWithoutGateway(t *testing.T) {
	h := newHome(t)
	config := fmt.Sprintf(`{"tunnel_token": %q, "upstream": "http://127.0.0.1:1", "transport": "websocket"}`,
		testToken.Encode())
	if err := os.WriteFile(h.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := h.runUpdate(newFakeManager(), nil, "--config", h.config, "--check")
	if code != exitRuntime || !strings.Contains(stderr, "asking the gateway for a newer version: ") ||
		!strings.Contains(stderr, "; ") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if code, _, stderr := h.runUpdate(newFakeManager(), nil); code != exitUsage ||
		!strings.Contains(stderr, "tunnel_token: missing") {
		t.Errorf("without a configuration: code %d, %s", code, stderr)
	}
}

// The running services of this user and of the system are updated. Services of other users are
// printed.
func TestServicesToUpdate(t *testing.T) {
	h, f := newHome(t), newFakeManager()
	own := service.Plan{Name: "postern-connector", Config: h.config, User: true, Home: h.env["HOME"]}
	rack := service.Plan{Name: "postern-rack", Config: "/etc/postern/rack.json"}
	stopped := service.Plan{Name: "postern-stopped", Config: "/etc/postern/stopped.json"}
	foreign := service.Plan{Name: "postern-connector", Config: "/home/you/c.json", User: true, Home: "/home/you"}
	for _, p := range []service.Plan{own, rack, foreign} {
		f.states[which(p.Name, p.User)] = service.Running
	}
	f.states[which(stopped.Name, false)] = service.Stopped
	out := new(output)
	sys := h.system(out, out)
	sys.services = f.of
	another := service.Plan{Name: "caddy", Executable: "/usr/bin/caddy"}
	sys.installed = func() ([]service.Plan, error) {
		return []service.Plan{another, own, rack, stopped, foreign}, nil
	}
	services, err := runningServices(sys)
	if err != nil || len(services) != 2 || services[0].Name != own.Name || services[1].Name != rack.Name {
		t.Fatalf("%+v, %v", services, err)
	}
	if services[0].Socket == services[1].Socket || services[1].Socket != serviceSocket(rack.Name) {
		t.Errorf("the sockets are %s and %s", services[0].Socket, services[1].Socket)
	}
	if err := services[1].Restart(); err != nil || strings.Join(f.did, " ") != "restart" {
		t.Errorf("%v, %v", f.did, err)
	}
	if got := out.String(); !strings.Contains(got, "postern-connector of the user with the home /home/you") ||
		strings.Contains(got, "rack") {
		t.Errorf("it prints %s", got)
	}
}

// Two updates of one program do not run at the same time.
func TestUpdateLock(t *testing.T) {
	h := newHome(t)
	sys := h.system(new(output), new(output))
	sys.executable = filepath.Join(filepath.Dir(h.config), "connector")
	unlock, err := lockProgram(t.Context(), sys)
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := lockProgram(soon, sys); err == nil ||
		!strings.Contains(err.Error(), "another update of this program is running") {
		t.Errorf("error %v", err)
	}
	unlock()
	unlock, err = lockProgram(t.Context(), sys)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
