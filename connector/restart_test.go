package main

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/service"
	"github.com/postern-dev/postern/connector/version"
)

// online answers at the socket of h as a connector that is online, with a version, until stop is called.
func (h *home) online(number string) (stop func()) {
	h.t.Helper()
	path, err := socketPath(func(name string) string { return h.env[name] }, h.config, "")
	if err != nil {
		h.t.Fatal(err)
	}
	if err := privateFolder(filepath.Dir(path)); err != nil {
		h.t.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		h.t.Fatal(err)
	}
	answer := report{Version: number, Status: agent.Status{State: agent.StateOnline, Tunnel: new(agent.TunnelStatus)}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, answer)
	})}
	go func() { _ = server.Serve(listener) }()
	stop = func() { server.Close() }
	h.t.Cleanup(stop)
	return stop
}

// restart executes `connector service restart` with signals; nil: there are none.
func (h *home) restart(
	f *fakeManager, signals func(context.Context) (context.Context, context.CancelFunc), args ...string,
) (code int, stdout, stderr string) {
	out, errs := new(output), new(output)
	sys := h.system(out, errs)
	sys.services, sys.executable = f.of, "/usr/local/bin/connector"
	if signals != nil {
		sys.signals = signals
	}
	args = append([]string{"service", "restart"}, args...)
	code = run(h.t.Context(), args, sys)
	return code, out.String(), errs.String()
}

// A restart ends once the connector is online with this program.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		state   service.State
		version string
		code    int
		did     string
		want    string
	}{
		{service.Running, version.Number(), exitOK, "restart", "The service runs version " + version.Number() + ": online"},
		{service.Stopped, version.Number(), exitOK, "start", "The service runs version"},
		{
			service.Running, "v0.0.1", exitRuntime, "restart",
			"the service runs another program than /usr/local/bin/connector, of version v0.0.1; update that one",
		},
	} {
		h, f := newHome(t), newFakeManager()
		f.states[which(service.DefaultName, true)] = tt.state
		h.online(tt.version)
		code, stdout, stderr := h.restart(f, nil, "--user", "--config", h.config)
		if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("%s: code %d, %s%s", tt.state, code, stdout, stderr)
		}
		if got := strings.Join(f.did, " "); got != tt.did {
			t.Errorf("%s: done: %s", tt.state, got)
		}
	}
}

// launchd does not wait for the end of a process, so a restart does. An interrupted restart does not leave the service
// stopped.
func TestRestartUnderLaunchd(t *testing.T) {
	h, f := newHome(t), newFakeManager()
	f.platform, f.states[which(service.DefaultName, true)] = launchd, service.Running
	end := h.online("v0.0.1")
	var ended atomic.Bool
	f.onStop = func() {
		go func() {
			ended.Store(true)
			end()
		}()
	}
	f.onStart = func() {
		if !ended.Load() {
			t.Error("the old process still runs")
		}
	}
	interrupted := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}
	logs := service.Plan{Name: service.DefaultName, User: true, Home: h.env["HOME"]}.LogCommand()
	code, _, stderr := h.restart(f, interrupted, "--user", "--config", h.config)
	if code != exitRuntime || !strings.Contains(stderr, "has restarted, but interrupted; the tunnel is down") ||
		!strings.Contains(stderr, "; see `"+logs+"`") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if got := strings.Join(f.did, " "); got != "stop start" {
		t.Errorf("done: %s", got)
	}
}

func TestRestartRefuses(t *testing.T) {
	h, f := newHome(t), newFakeManager()
	f.states[which(service.DefaultName, false)] = service.Running
	if code, _, stderr := h.restart(f, nil); code != exitRuntime ||
		!strings.Contains(stderr, "this is a system service; run: sudo connector service restart") {
		t.Errorf("the machine's, by a user: code %d, %s", code, stderr)
	}
	f.states[which("postern-rack", true)] = service.Running
	if code, _, stderr := h.restart(f, nil, "--name", "postern-rack"); code != exitUsage ||
		!strings.Contains(stderr, "--config: missing") {
		t.Errorf("another one without its configuration: code %d, %s", code, stderr)
	}
	if len(f.did) > 0 {
		t.Errorf("done: %v", f.did)
	}
}
